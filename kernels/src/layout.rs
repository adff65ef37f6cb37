//! How elements lie in a block: dims, strides and an offset, all in elements.

use smallvec::SmallVec;

/// The most dims a tensor may have; layouts travel to kernels by value.
pub const MAX_RANK: usize = 8;

/// Sizes of dims.
pub type Dims = SmallVec<[usize; 4]>;
/// Distances between neighbours along each dim, in elements; 0 where a dim is broadcast.
pub type Strides = SmallVec<[usize; 4]>;

/// Where the elements of a tensor lie in its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    dims: Dims,
    strides: Strides,
    offset: usize,
}

impl Layout {
    /// Row-major, from the start of the block. The product of `dims` must not overflow: callers check sizes first.
    pub fn contiguous(dims: &[usize]) -> Layout {
        let mut strides: Strides = SmallVec::from_elem(1, dims.len());
        for i in (0..dims.len().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1].saturating_mul(dims[i + 1].max(1));
        }
        Layout { dims: dims.into(), strides, offset: 0 }
    }

    /// Any layout. `dims` and `strides` have one length.
    pub fn new(dims: &[usize], strides: &[usize], offset: usize) -> Layout {
        assert_eq!(dims.len(), strides.len(), "a stride for each dim");
        Layout { dims: dims.into(), strides: strides.into(), offset }
    }

    /// Sizes.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }
    /// Strides, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }
    /// Index of the first element in the block.
    pub fn offset(&self) -> usize {
        self.offset
    }
    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }
    /// Number of elements; 1 for no dims.
    pub fn elements(&self) -> usize {
        if self.dims.contains(&0) { 0 } else { self.dims.iter().fold(1, |n: usize, &d| n.saturating_mul(d)) }
    }

    /// Whether the elements lie row-major without gaps (the offset may be anything). Dims of size 1 don't count.
    pub fn is_contiguous(&self) -> bool {
        if self.elements() == 0 {
            return true;
        }
        let mut expected = 1;
        for (&d, &s) in self.dims.iter().zip(&self.strides).rev() {
            if d != 1 && s != expected {
                return false;
            }
            expected *= d;
        }
        true
    }

    /// One past the largest element index that the layout touches; 0 where it is empty.
    pub fn extent(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        // Past the end of any block where it overflows.
        let reach = |end: usize, (&d, &s): (&usize, &usize)| end.saturating_add((d - 1).saturating_mul(s));
        self.dims.iter().zip(&self.strides).fold(self.offset, reach).saturating_add(1)
    }

    /// The same elements seen as `dims`, dims of size 1 or missing ones in front repeated (stride 0); `None` where that is
    /// no broadcast.
    pub fn broadcast_to(&self, dims: &[usize]) -> Option<Layout> {
        let lead = dims.len().checked_sub(self.rank())?;
        let mut strides: Strides = SmallVec::from_elem(0, dims.len());
        for i in 0..self.rank() {
            match (self.dims[i], dims[lead + i]) {
                (a, b) if a == b => strides[lead + i] = self.strides[i],
                (1, _) => {}
                _ => return None,
            }
        }
        Some(Layout { dims: dims.into(), strides, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_that_overflows_fits_no_block() {
        for layout in [Layout::new(&[3], &[usize::MAX / 2 + 1], 0), Layout::new(&[2, 2], &[1, 1], usize::MAX - 1)] {
            assert_eq!(layout.extent(), usize::MAX);
        }
    }
}
