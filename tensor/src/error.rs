//! Errors of tensor code: each names the op and what it was given.

use crate::{DType, Shape};
use kiln_alloc::{AllocError, OomReport, SourceError};
use kiln_kernels::KernelError;

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Nothing here is fatal: tensors, devices and modes stay usable.
#[derive(Clone, thiserror::Error)]
pub enum Error {
    /// Shapes do not fit each other or the op.
    #[error("{op}: {message}")]
    Shape {
        /// Name of the op.
        op: &'static str,
        /// What was given and what is wanted.
        message: String,
    },
    /// An element type does not fit.
    #[error("{op}: {message}")]
    DType {
        /// Name of the op.
        op: &'static str,
        /// What was given and what is wanted.
        message: String,
    },
    /// Operands lie on different devices, or a device is not there.
    #[error("{op}: {message}")]
    Device {
        /// Name of the op.
        op: &'static str,
        /// What was given and what is wanted.
        message: String,
    },
    /// An argument is out of its range.
    #[error("{op}: {message}")]
    Argument {
        /// Name of the op.
        op: &'static str,
        /// What was given and what is wanted.
        message: String,
    },
    /// The number of elements or bytes overflows.
    #[error("a tensor of shape {shape} and type {dtype} is larger than any device can address")]
    SizeOverflow {
        /// The shape.
        shape: Shape,
        /// The element type.
        dtype: DType,
    },
    /// The device has no memory for the request; the report says where every byte is.
    #[error("out of memory{}\n{report}", op.map(|o| format!(" in {o}")).unwrap_or_default())]
    OutOfMemory {
        /// The op that asked, where one did.
        op: Option<&'static str>,
        /// Where every byte is.
        report: Box<OomReport>,
    },
    /// Values of a dry-run device cannot be read: it computes nothing.
    #[error(
        "{op}: values of a dry-run device cannot be read, since it computes nothing; check `device.is_dry_run()` before reading"
    )]
    DryRun {
        /// Name of the op.
        op: &'static str,
    },
    /// Memory, ordering or a driver failed.
    #[error(transparent)]
    Alloc(AllocError),
    /// A kernel failed.
    #[error("{}", kernel_text(op, source))]
    Kernel {
        /// Name of the op.
        op: &'static str,
        /// What it said.
        source: KernelError,
    },
    /// An op with no derivative was given a tensor that wants one.
    #[error("{op} has no derivative, but an input wants a gradient; call it on `detach()`ed tensors or inside `no_grad`")]
    NoDerivative {
        /// Name of the op.
        op: &'static str,
    },
    /// Something about gradients is wrong: no history, a second backward, a partial gradient.
    #[error("{0}")]
    Autograd(String),
    /// A tensor saved for backward was changed in place before backward read it.
    #[error(
        "a {shape} tensor that {saved_by} saved for backward was changed in place by {changed_by} (version {found}, saved at {expected}); \
         change it after backward, or give the op a copy"
    )]
    SavedChanged {
        /// The op that saved it.
        saved_by: &'static str,
        /// The last op that changed it.
        changed_by: &'static str,
        /// Its shape.
        shape: Shape,
        /// Version at the time of the save.
        expected: u64,
        /// Version now.
        found: u64,
    },
    /// A checkpointed function did not do in recomputation what it did in forward.
    #[error("checkpoint: {0}")]
    Checkpoint(String),
    /// A file could not be read or written, or holds something else than it should.
    #[error("{path}: {message}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        message: String,
    },
    /// A message of the user's own, for ops and modules of theirs.
    #[error("{0}")]
    Message(String),
    /// Ends a recomputation early; never reaches a user.
    #[doc(hidden)]
    #[error("recomputation has what it needs (internal)")]
    EarlyStop,
}

/// A program that returns its error from `main` prints this: the message is what its user needs.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// What a kernel said, after the op's name where that is another one.
fn kernel_text(op: &str, source: &KernelError) -> String {
    let text = source.to_string();
    if op.is_empty() || text.starts_with(op) { text } else { format!("{op}: {text}") }
}

impl Error {
    /// An error in the user's own words.
    pub fn message(text: impl Into<String>) -> Error {
        Error::Message(text.into())
    }
    /// Shapes that do not fit.
    pub fn shape(op: &'static str, message: impl Into<String>) -> Error {
        Error::Shape { op, message: message.into() }
    }
    /// An element type that does not fit.
    pub fn dtype(op: &'static str, message: impl Into<String>) -> Error {
        Error::DType { op, message: message.into() }
    }
    /// An argument out of its range.
    pub fn argument(op: &'static str, message: impl Into<String>) -> Error {
        Error::Argument { op, message: message.into() }
    }
    /// Whether the device ran out of memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::OutOfMemory { .. })
    }

    /// The error with the name of the op that met it, where it had none.
    pub(crate) fn in_op(self, name: &'static str) -> Error {
        match self {
            Error::OutOfMemory { op: None, report } => Error::OutOfMemory { op: Some(name), report },
            Error::Kernel { op: "", source } => Error::Kernel { op: name, source },
            other => other,
        }
    }
}

impl From<AllocError> for Error {
    fn from(error: AllocError) -> Error {
        match error {
            AllocError::OutOfMemory(report) => Error::OutOfMemory { op: None, report },
            other => Error::Alloc(other),
        }
    }
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Error {
        Error::Alloc(AllocError::Source(error))
    }
}

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Error {
        match error {
            KernelError::Alloc(e) => e.into(),
            source => Error::Kernel { op: "", source },
        }
    }
}
