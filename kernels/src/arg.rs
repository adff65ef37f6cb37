//! Operands of a kernel: a token, an element type and a layout.

use crate::{DType, Layout};
use kiln_alloc::{Read, Write};

/// An operand a kernel reads. The layout fits the block: whoever builds an `Arg` through [`Arg::new`] is checked.
#[derive(Clone, Copy)]
pub struct Arg<'a> {
    /// Access to the block.
    pub token: &'a Read<'a>,
    /// Element type.
    pub dtype: DType,
    /// Where the elements lie.
    pub layout: &'a Layout,
}

impl<'a> Arg<'a> {
    /// An operand; panics where the layout reaches past the block (a bug of the caller, never of user input).
    pub fn new(token: &'a Read<'a>, dtype: DType, layout: &'a Layout) -> Arg<'a> {
        assert!(layout.extent() * dtype.size() <= token.bytes(), "layout reaches past its block");
        Arg { token, dtype, layout }
    }
    /// Device address of the first element.
    pub fn address(&self) -> u64 {
        self.token.address() + (self.layout.offset() * self.dtype.size()) as u64
    }
}

/// An operand a kernel writes. Elements of the layout are distinct (no stride 0 over a dim larger than 1).
pub struct OutArg<'a> {
    /// Access to the block.
    pub token: &'a mut Write<'a>,
    /// Element type.
    pub dtype: DType,
    /// Where the elements lie.
    pub layout: &'a Layout,
}

impl<'a> OutArg<'a> {
    /// An operand; panics where the layout reaches past the block (a bug of the caller, never of user input).
    pub fn new(token: &'a mut Write<'a>, dtype: DType, layout: &'a Layout) -> OutArg<'a> {
        assert!(layout.extent() * dtype.size() <= token.bytes(), "layout reaches past its block");
        OutArg { token, dtype, layout }
    }
    /// Device address of the first element.
    pub fn address(&self) -> u64 {
        self.token.address() + (self.layout.offset() * self.dtype.size()) as u64
    }
}
