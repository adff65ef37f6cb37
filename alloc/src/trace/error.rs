//! What can be wrong with a file, one sentence each, with the place.

/// Why a trace or a snapshot could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The file could not be read at all.
    #[error("the file cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The gzip stream is damaged or cut short.
    #[error("the gzip stream is damaged after {position} inflated bytes: {message}")]
    Gzip {
        /// Inflated bytes before the damage.
        position: usize,
        /// The inflater's words.
        message: String,
    },
    /// The file is, or becomes when inflated, larger than can be trusted.
    #[error("the file holds more than the {limit} bytes that its size allows for")]
    TooLarge {
        /// Bytes allowed.
        limit: usize,
    },
    /// The content is that of no format.
    #[error(
        "the file is no trace: neither a log (lines `a ID BYTES STREAM [CATEGORY]` and `f ID`), nor CSV (first line \
         `op,id,size,stream,t_us`), nor a memory snapshot of PyTorch (a pickle of protocol 2 or later); each may be gzipped"
    )]
    NoTrace,
    /// A pickle of plain types that is neither the dictionary nor the list of a snapshot.
    #[error("the pickle is no snapshot: neither a dict nor a list")]
    NoSnapshot,
    /// A line of a log or CSV file is malformed.
    #[error("line {line} {what}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A block is allocated again while it is live.
    #[error("{place} {position} allocates block {id}, which is live")]
    DoubleAlloc {
        /// What is counted: `line` or `trace entry`.
        place: &'static str,
        /// Number of the line, from 1, or of the entry, from 0.
        position: usize,
        /// The id, or the address, of the block.
        id: u64,
    },
    /// A pickle is malformed.
    #[error("byte {position} of the pickle {what}")]
    Pickle {
        /// Byte offset in the pickle.
        position: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// A pickle asks to run code, or for something outside of itself.
    #[error("byte {position} of the pickle is {opcode}, which plain data does not need and this reader refuses")]
    Refused {
        /// Byte offset in the pickle.
        position: usize,
        /// Python's name of the opcode.
        opcode: &'static str,
    },
    /// A pickle of plain types that is not a snapshot.
    #[error("{record} {index}: `{key}` {what}")]
    Field {
        /// The kind of record: `segment`, `block`, `trace entry`, ...
        record: &'static str,
        /// Its position in its list, from 0.
        index: usize,
        /// The key in question.
        key: &'static str,
        /// What is wrong with its value.
        what: &'static str,
    },
}
