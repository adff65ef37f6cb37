//! Counter-based random numbers: Philox 4x32-10 with a 64-bit seed as its key. Element `i` of a call takes word `i % 4` of the block with
//! counter `offset + i / 4` (low 64 bits of the counter; high 64 bits 0), so bits are the same on every device.
//!
//! A uniform is `(word >> 8) * 2^-24`, in [0, 1), exact in f32. A call over `n` elements uses `ceil(n / 4)` counters.
//! Normals: elements `4b .. 4b+3` come by Box–Muller from the four words of block `b`: with `u = 1 - uniform`, pair (0, 1):
//! `r = sqrt(-2 ln u0)`, `z0 = r cos(2π u1)`, `z1 = r sin(2π u1)`; likewise (2, 3).

use crate::{Arg, DType, KernelError, OutArg, Result};

mod cpu;
mod cuda;
mod philox;

pub(crate) use cuda::sources;

pub use philox::{counters_for, philox};

/// `out[i] = lo + (hi - lo) * uniform`, contiguous, any float type (computed in f32; f64 for f64, from the same 24 bits).
///
/// Where that rounds to `hi`, one step of the element type less is taken from the uniform, and `lo` where this rounds to `hi` too.
pub struct Uniform<'a> {
    /// Key.
    pub seed: u64,
    /// First counter.
    pub offset: u64,
    /// Smallest value.
    pub lo: f64,
    /// Bound above.
    pub hi: f64,
    /// Destination, contiguous.
    pub out: OutArg<'a>,
}

/// `out[i] = mean + std * normal`, contiguous, any float type.
pub struct Normal<'a> {
    /// Key.
    pub seed: u64,
    /// First counter.
    pub offset: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
    /// Destination, contiguous.
    pub out: OutArg<'a>,
}

/// `out[i] = lo + word % (hi - lo)` as i64, contiguous.
pub struct RandInt<'a> {
    /// Key.
    pub seed: u64,
    /// First counter.
    pub offset: u64,
    /// Smallest value.
    pub lo: i64,
    /// Bound above; `hi - lo` is in 1..=2^32.
    pub hi: i64,
    /// Destination, contiguous i64.
    pub out: OutArg<'a>,
}

/// `out[i] = uniform(i) >= p ? x[i] / (1 - p) : 0`; with `p == 1` zeros (never NaN). The backward pass is the same kernel over the gradient.
pub struct Dropout<'a> {
    /// Source, contiguous, any float type.
    pub x: Arg<'a>,
    /// Probability of a zero, 0 to 1.
    pub p: f64,
    /// Key.
    pub seed: u64,
    /// First counter.
    pub offset: u64,
    /// Destination, contiguous, type of `x`.
    pub out: OutArg<'a>,
}

/// An element is dropped where its word, shifted right by 8, is less than this: `uniform < p` in integers, exactly.
fn drop_below(p: f64) -> u32 {
    (p * 2f64.powi(24)).ceil() as u32
}

/// The distance of the numbers below 1 of a type, of the 24 bits that there are at most: by how much a uniform goes down where its value rounds to
/// the bound above.
fn step(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => 2f64.powi(-24),
    }
}

/// How many values there are.
fn check_rand_int(k: &RandInt<'_>) -> Result<u64> {
    if k.out.dtype != DType::I64 {
        return Err(KernelError::DType { kernel: "rand_int", dtype: k.out.dtype });
    }
    match k.hi.checked_sub(k.lo) {
        Some(range @ 1..=0x1_0000_0000) => Ok(range as u64),
        _ => Err(KernelError::Operand(format!("rand_int: {}..{} is not a range of 1 to 2^32 integers", k.lo, k.hi))),
    }
}

impl crate::Kernel for Uniform<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::uniform(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::uniform(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Normal<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::normal(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::normal(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for RandInt<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::rand_int(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::rand_int(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Dropout<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::dropout(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::dropout(self, cuda, stream, workspace)
    }
}
