//! cuBLAS: a handle and a fixed piece of scratch memory for each stream.
//!
//! Matrices here are cuBLAS's, column-major: a row-major matrix is its own transpose. Scratch memory comes from the
//! device's allocator and is set explicitly, so that cuBLAS takes none of its own and chooses among the same algorithms in
//! every run.

use super::library;
use crate::matmul::BlasWorkspace;
use crate::{DType, KernelError, Result};
use cudarc::cublas::sys;
use kiln_alloc::{AllocError, Allocator, RawStream, Stream, StreamId, Write, driver};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// The cuBLAS handles of a device.
pub(crate) struct Blas {
    ordinal: usize,
    handles: Mutex<HashMap<StreamId, Handle>>,
    workspaces: BlasWorkspace,
}

/// An operand of a product: column-major with `ld` elements from column to column, or the transpose of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub address: u64,
    pub transposed: bool,
    pub ld: usize,
    /// Elements from one matrix of the batch to the next.
    pub stride: usize,
}

/// `c = alpha * a @ b + beta * c`, column-major, over a batch; `c` (`m` × `n`) is dense.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gemm {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Operand,
    pub b: Operand,
    pub c: u64,
    /// Type of `a` and `b`.
    pub input: DType,
    /// Type of `c`.
    pub output: DType,
    pub tf32: bool,
    pub alpha: f64,
    pub beta: f64,
}

impl Blas {
    /// Handles for device `ordinal`, made as streams come; their scratch memory comes from `allocator`.
    pub fn new(ordinal: usize, allocator: &Allocator) -> Result<Blas> {
        library::CUBLAS.require()?;
        Ok(Blas { ordinal, handles: Mutex::default(), workspaces: BlasWorkspace::new(allocator) })
    }

    /// Gives the scratch memory back to the allocator. Handles stay, and take it anew when next used.
    pub fn release_workspaces(&self) {
        self.workspaces.release();
    }
    /// As [`Blas::release_workspaces`], unless a product is being enqueued.
    pub fn release_idle_workspaces(&self) {
        self.workspaces.release_idle();
    }

    /// Enqueues a product. The caller holds tokens of the operands for `stream`.
    pub fn gemm(&self, stream: &Stream, g: &Gemm) -> Result<()> {
        let (input, output) = (cuda_type(g.input)?, cuda_type(g.output)?);
        let compute = match (g.input, g.tf32) {
            (DType::F64, _) => sys::cublasComputeType_t::CUBLAS_COMPUTE_64F,
            (DType::F32, true) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let (alpha, beta) = (Factor::new(g.input, g.alpha), Factor::new(g.input, g.beta));
        let (m, n, k, ldc) = (long(g.m)?, long(g.n)?, long(g.k)?, long(g.m)?);
        let (lda, ldb) = (long(g.a.ld)?, long(g.b.ld)?);
        let algorithm = sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT;
        let (a, b, c) = (g.a.address as *const c_void, g.b.address as *const c_void, g.c as *mut c_void);
        let (op_a, op_b) = (operation(g.a), operation(g.b));
        self.with_handle(stream, |handle| {
            if g.batch == 1 {
                // SAFETY: addresses are of blocks whose tokens the caller holds, sizes and leading dims stay within them
                // (`Arg` checked that), and the factors are host numbers of the compute type, read before the call returns.
                let status = unsafe {
                    sys::cublasGemmEx_64(
                        handle,
                        op_a,
                        op_b,
                        m,
                        n,
                        k,
                        alpha.pointer(),
                        a,
                        input,
                        lda,
                        b,
                        input,
                        ldb,
                        beta.pointer(),
                        c,
                        output,
                        ldc,
                        compute,
                        algorithm,
                    )
                };
                return check("cublasGemmEx", status);
            }
            let (batch, stride_a, stride_b) = (long(g.batch)?, long(g.a.stride)?, long(g.b.stride)?);
            let stride_c = long(g.m * g.n)?;
            // SAFETY: as above; strides between matrices stay within the operands too.
            let status = unsafe {
                sys::cublasGemmStridedBatchedEx_64(
                    handle,
                    op_a,
                    op_b,
                    m,
                    n,
                    k,
                    alpha.pointer(),
                    a,
                    input,
                    lda,
                    stride_a,
                    b,
                    input,
                    ldb,
                    stride_b,
                    beta.pointer(),
                    c,
                    output,
                    ldc,
                    stride_c,
                    batch,
                    compute,
                    algorithm,
                )
            };
            check("cublasGemmStridedBatchedEx", status)
        })
    }

    /// Enqueues `x = factor * x` over `elements` elements. The caller holds a token of `x` for `stream`.
    pub fn scale(&self, stream: &Stream, factor: f64, x: u64, elements: usize, dtype: DType) -> Result<()> {
        let (x_type, compute) = (cuda_type(dtype)?, cuda_type(dtype.accumulator())?);
        let (factor, elements) = (Factor::new(dtype, factor), long(elements)?);
        self.with_handle(stream, |handle| {
            // SAFETY: the address is of a block whose token the caller holds and that has the elements; the factor is a
            // host number of the compute type, read before the call returns.
            let status = unsafe {
                sys::cublasScalEx_64(handle, elements, factor.pointer(), compute, x as *mut c_void, x_type, 1, compute)
            };
            check("cublasScalEx", status)
        })
    }

    /// Lends the handle of `stream`, set up for it, while no other thread uses it.
    fn with_handle<R>(&self, stream: &Stream, call: impl FnOnce(sys::cublasHandle_t) -> Result<R>) -> Result<R> {
        self.workspaces.with(stream, |workspace| {
            driver::bind(self.ordinal).map_err(AllocError::from)?;
            // A panic of another thread leaves the map whole: handles are inserted in one step.
            let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
            let handle = match handles.entry(stream.id()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(Handle::new()?),
            };
            handle.attach(stream, workspace)?;
            call(handle.raw)
        })
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // A context that is gone took its handles along; nothing is left to do then.
        if driver::bind(self.ordinal).is_ok() {
            self.handles.get_mut().unwrap_or_else(PoisonError::into_inner).drain().for_each(|(_, handle)| handle.destroy());
        }
    }
}

/// A handle, and what was last set on it.
struct Handle {
    raw: sys::cublasHandle_t,
    attached: Option<(RawStream, u64)>,
}

// SAFETY: a handle may be used from any thread, by one at a time; the mutex of `Blas` sees to that.
unsafe impl Send for Handle {}

impl Handle {
    /// A handle on the current context. Sums of 16-bit products stay in f32 up to the final rounding.
    fn new() -> Result<Handle> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes the handle to a local of its type.
        check("cublasCreate", unsafe { sys::cublasCreate_v2(&mut raw) })?;
        let handle = Handle { raw, attached: None };
        let mode = sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        // SAFETY: the handle was made just now.
        match check("cublasSetMathMode", unsafe { sys::cublasSetMathMode(raw, mode) }) {
            Ok(()) => Ok(handle),
            Err(error) => {
                handle.destroy();
                Err(error)
            }
        }
    }

    /// Points the handle at a stream and its scratch memory, unless it is already.
    fn attach(&mut self, stream: &Stream, workspace: &Write<'_>) -> Result<()> {
        let wanted = (stream.raw(), workspace.address());
        if self.attached == Some(wanted) {
            return Ok(());
        }
        self.attached = None;
        // SAFETY: the stream lives, and calls on the handle are made only while its owner is at hand.
        check("cublasSetStream", unsafe { sys::cublasSetStream_v2(self.raw, stream.raw().0 as sys::cudaStream_t) })?;
        // Setting a stream drops the workspace, so it comes second.
        // SAFETY: the block has these bytes, and the handle is used only under a write token of it (see `with_handle`).
        let status = unsafe { sys::cublasSetWorkspace_v2(self.raw, workspace.address() as *mut c_void, workspace.bytes()) };
        check("cublasSetWorkspace", status)?;
        self.attached = Some(wanted);
        Ok(())
    }

    /// Gives the handle back. Whatever cuBLAS says, it is gone.
    fn destroy(self) {
        // SAFETY: the handle is live and, taken by value, used no more; its last stream may be gone, so it is detached first.
        unsafe {
            sys::cublasSetStream_v2(self.raw, std::ptr::null_mut());
            sys::cublasDestroy_v2(self.raw);
        }
    }
}

/// A factor in the type that cuBLAS reads it in: f64 for f64 products, else f32.
enum Factor {
    Double(f64),
    Single(f32),
}

impl Factor {
    fn new(dtype: DType, value: f64) -> Factor {
        if dtype == DType::F64 { Factor::Double(value) } else { Factor::Single(value as f32) }
    }
    fn pointer(&self) -> *const c_void {
        match self {
            Factor::Double(value) => std::ptr::from_ref(value).cast(),
            Factor::Single(value) => std::ptr::from_ref(value).cast(),
        }
    }
}

fn operation(operand: Operand) -> sys::cublasOperation_t {
    if operand.transposed { sys::cublasOperation_t::CUBLAS_OP_T } else { sys::cublasOperation_t::CUBLAS_OP_N }
}

fn cuda_type(dtype: DType) -> Result<sys::cudaDataType> {
    match dtype {
        DType::F64 => Ok(sys::cudaDataType::CUDA_R_64F),
        DType::F32 => Ok(sys::cudaDataType::CUDA_R_32F),
        DType::F16 => Ok(sys::cudaDataType::CUDA_R_16F),
        DType::BF16 => Ok(sys::cudaDataType::CUDA_R_16BF),
        _ => Err(KernelError::DType { kernel: "matmul", dtype }),
    }
}

fn long(size: usize) -> Result<i64> {
    i64::try_from(size).map_err(|_| KernelError::Library(format!("cuBLAS cannot count to {size}")))
}

fn check(call: &'static str, status: sys::cublasStatus_t) -> Result<()> {
    match status {
        sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        _ => Err(KernelError::Library(format!("{call} failed: {status:?}"))),
    }
}
