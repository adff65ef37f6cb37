//! Operands of a kernel: a token, an element type and a layout.

use crate::{DType, KernelError, Layout, Result};
use kiln_alloc::{Read, Write};

/// An operand a kernel reads. The layout fits the block: [`Arg::new`], the one way to make it, checks that.
#[derive(Clone, Copy)]
pub struct Arg<'a> {
    /// Access to the block.
    pub(crate) token: &'a Read<'a>,
    /// Element type.
    pub(crate) dtype: DType,
    /// Where the elements lie.
    pub(crate) layout: &'a Layout,
}

impl<'a> Arg<'a> {
    /// An operand; panics where the layout reaches past the block (a bug of the caller, never of user input).
    pub fn new(token: &'a Read<'a>, dtype: DType, layout: &'a Layout) -> Arg<'a> {
        assert!(layout.extent().saturating_mul(dtype.size()) <= token.bytes(), "layout reaches past its block");
        Arg { token, dtype, layout }
    }
    /// Device address of the first element.
    pub fn address(&self) -> u64 {
        self.token.address() + (self.layout.offset() * self.dtype.size()) as u64
    }
}

/// Exclusive access to a block for the length of a kernel call: what a kernel sees of a write token. (A plain reborrow of the token would tie the
/// lifetimes of all operands together.)
pub struct OutToken<'a> {
    address: u64,
    bytes: usize,
    slice: Option<&'a mut [u8]>,
}

impl<'a> OutToken<'a> {
    /// Where the block lies in device memory.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// Bytes of the block.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// The bytes themselves, where the device is the host; `None` elsewhere.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        self.slice.as_deref_mut()
    }
    /// The bytes themselves, for as long as the token was borrowed.
    pub fn into_slice(self) -> Option<&'a mut [u8]> {
        self.slice
    }
}

/// An operand a kernel writes. The layout fits the block, as in [`Arg`]. Elements of the layout are distinct (no stride 0 over a dim larger than 1).
pub struct OutArg<'a> {
    /// Access to the block.
    pub(crate) token: OutToken<'a>,
    /// Element type.
    pub(crate) dtype: DType,
    /// Where the elements lie.
    pub(crate) layout: &'a Layout,
}

impl<'a> OutArg<'a> {
    /// An operand; panics where the layout reaches past the block (a bug of the caller, never of user input).
    pub fn new(token: &'a mut Write<'_>, dtype: DType, layout: &'a Layout) -> OutArg<'a> {
        assert!(layout.extent().saturating_mul(dtype.size()) <= token.bytes(), "layout reaches past its block");
        let (address, bytes) = (token.address(), token.bytes());
        OutArg { token: OutToken { address, bytes, slice: token.as_mut_slice() }, dtype, layout }
    }
    /// Device address of the first element.
    pub fn address(&self) -> u64 {
        self.token.address() + (self.layout.offset() * self.dtype.size()) as u64
    }
}

/// Checks type and dims of an operand.
pub(crate) fn expect(kernel: &'static str, x: &Arg<'_>, dtype: DType, dims: &[usize]) -> Result<()> {
    if x.dtype == dtype && x.layout.dims() == dims {
        return Ok(());
    }
    let (got, got_dims) = (x.dtype, x.layout.dims());
    Err(KernelError::Operand(format!("{kernel}: an operand is {got} {got_dims:?} where {dtype} {dims:?} is wanted")))
}

/// Checks that a destination is contiguous.
pub(crate) fn expect_contiguous(kernel: &'static str, out: &OutArg<'_>) -> Result<()> {
    if out.layout.is_contiguous() {
        return Ok(());
    }
    let (dims, strides) = (out.layout.dims(), out.layout.strides());
    Err(KernelError::Operand(format!(
        "{kernel}: the destination must be contiguous; it has dims {dims:?} and strides {strides:?}"
    )))
}
