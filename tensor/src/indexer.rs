//! `t.i(..)`.

/// One entry.
pub enum Index {}
/// `i(..)`.
pub trait IndexOp {}
