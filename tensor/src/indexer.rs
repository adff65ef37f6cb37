//! `t.i((.., 0..2, 3))`: parts of a tensor by ranges and positions, one entry a dim, as one view; and such parts given other elements.

use crate::op::apply;
use crate::ops::narrow::Slice;
use crate::ops::slice_assign::Assign;
use crate::{Error, Result, Tensor};
use std::fmt;
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// What to take of one dim. Made from a position or a range; negative numbers count from the back, as in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One position; the dim vanishes.
    Select(i64),
    /// Every `step`-th position of a range, from its first on.
    Narrow {
        /// Where it begins.
        start: Bound<i64>,
        /// Where it ends.
        end: Bound<i64>,
        /// Distance of positions, at least 1.
        step: usize,
    },
    /// As many whole dims as other entries leave over, maybe none: Python's `...`. At most once.
    Ellipsis,
}

impl Index {
    /// Every `step`-th position of a range: Python's `start:end:step`, forwards. (To go backwards, [`Tensor::flip`].) A position stays what it is.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, Index, IndexOp};
    /// let x = Tensor::from_vec(vec![0i64, 1, 2, 3, 4, 5, 6], 7, &Device::cpu())?;
    /// assert_eq!(x.i(Index::step(1.., 2))?.to_vec::<i64>()?, [1, 3, 5]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    pub fn step(range: impl Into<Index>, step: usize) -> Index {
        match range.into() {
            Index::Narrow { start, end, .. } => Index::Narrow { start, end, step },
            other => other,
        }
    }
}

/// A position past i64 is out of range for any dim all the same.
fn saturated(position: impl TryInto<i64>) -> i64 {
    position.try_into().unwrap_or(i64::MAX)
}

macro_rules! from_position {
    ($($t:ty),*) => {$(
        impl From<$t> for Index {
            fn from(position: $t) -> Index {
                Index::Select(saturated(position))
            }
        }
        from_range!($t: Range<$t>, RangeFrom<$t>, RangeInclusive<$t>, RangeTo<$t>, RangeToInclusive<$t>);
    )*};
}

macro_rules! from_range {
    ($n:ty: $($t:ty),*) => {$(
        impl From<$t> for Index {
            fn from(range: $t) -> Index {
                let bound = |b: Bound<&$n>| b.map(|&n| saturated(n));
                Index::Narrow { start: bound(range.start_bound()), end: bound(range.end_bound()), step: 1 }
            }
        }
    )*};
}
from_position!(usize, i32, i64);

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::Narrow { start: Bound::Unbounded, end: Bound::Unbounded, step: 1 }
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Index::Select(position) => write!(f, "{position}"),
            Index::Ellipsis => f.write_str("..."),
            Index::Narrow { start, end, step } => {
                match start {
                    Bound::Included(n) => write!(f, "{n}..")?,
                    Bound::Excluded(n) => write!(f, "{}..", n.saturating_add(1))?,
                    Bound::Unbounded => f.write_str("..")?,
                }
                match end {
                    Bound::Included(n) => write!(f, "={n}")?,
                    Bound::Excluded(n) => write!(f, "{n}")?,
                    Bound::Unbounded => {}
                }
                if *step == 1 { Ok(()) } else { write!(f, " by {step}") }
            }
        }
    }
}

/// A position in a dim of `size`, counted from the back where negative; it may lie past the end.
fn from_front(position: i64, size: usize) -> Option<usize> {
    let back = if position < 0 { i64::try_from(size).ok()? } else { 0 };
    usize::try_from(position.checked_add(back)?).ok()
}

impl Index {
    /// First position, number of positions and their distance in a dim of `size`, where they exist.
    fn resolve(self, size: usize) -> Option<(usize, usize, usize)> {
        let (start, end, step) = match self {
            Index::Ellipsis => (0, size, 1),
            Index::Select(position) => {
                let position = from_front(position, size)?;
                (position, position.checked_add(1)?, 1)
            }
            Index::Narrow { start, end, step } => {
                let start = match start {
                    Bound::Included(n) => from_front(n, size)?,
                    Bound::Excluded(n) => from_front(n, size)?.checked_add(1)?,
                    Bound::Unbounded => 0,
                };
                let end = match end {
                    Bound::Included(n) => from_front(n, size)?.checked_add(1)?,
                    Bound::Excluded(n) => from_front(n, size)?,
                    Bound::Unbounded => size,
                };
                (start, end, step)
            }
        };
        let len = if end <= size && step > 0 { end.checked_sub(start)? } else { return None };
        Some((start, len.div_ceil(step), step))
    }
}

/// Indexing by a position, a range, or a tuple of up to six of them, for the first dims; later dims stay whole, or those in the place of an
/// [`Index::Ellipsis`]. Negative numbers count from the back.
///
/// ```
/// # use kiln_tensor::{Tensor, Device, Index, IndexOp};
/// let x = Tensor::from_vec(vec![1i64, 2, 3, 4, 5, 6], (2, 3), &Device::cpu())?;
/// assert_eq!(x.i((.., 1..))?.to_vec2::<i64>()?, [[2, 3], [5, 6]]);
/// assert_eq!(x.i((-1, ..-1))?.to_vec1::<i64>()?, [4, 5]);
/// assert_eq!(x.i((Index::Ellipsis, 0))?.to_vec1::<i64>()?, [1, 4]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
pub trait IndexOp<T> {
    /// The part that `index` names; shares memory.
    ///
    /// # Errors
    /// Where a position or range is out of range, a step is 0, or there are more entries than dims.
    fn i(&self, index: T) -> Result<Tensor>;

    /// This tensor with the part that `index` names taken from `src`, which broadcasts to it. To write in place, `t.i(index)?.copy_(&src)`.
    ///
    /// The part gets no gradient; `src` gets that of the part.
    ///
    /// # Errors
    /// As [`IndexOp::i`]; where `src` has another type or does not broadcast to the part.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, IndexOp};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.slice_assign((.., 1), &Tensor::scalar(0i64, &Device::cpu())?)?.to_vec2::<i64>()?, [[1, 0], [3, 0]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    fn slice_assign(&self, index: T, src: &Tensor) -> Result<Tensor>;
}

impl<A: Into<Index>> IndexOp<A> for Tensor {
    #[track_caller]
    fn i(&self, index: A) -> Result<Tensor> {
        part(self, &[index.into()])
    }
    #[track_caller]
    fn slice_assign(&self, index: A, src: &Tensor) -> Result<Tensor> {
        assign(self, &[index.into()], src)
    }
}

macro_rules! tuples {
    ($($t:ident),*) => {
        #[allow(non_snake_case)]
        impl<$($t: Into<Index>),*> IndexOp<($($t,)*)> for Tensor {
            #[track_caller]
            fn i(&self, ($($t,)*): ($($t,)*)) -> Result<Tensor> {
                part(self, &[$($t.into()),*])
            }
            #[track_caller]
            fn slice_assign(&self, ($($t,)*): ($($t,)*), src: &Tensor) -> Result<Tensor> {
                assign(self, &[$($t.into()),*], src)
            }
        }
    };
}
tuples!(A);
tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);
tuples!(A, B, C, D, E);
tuples!(A, B, C, D, E, F);

/// The part of `x` that the entries name.
fn slice(op: &'static str, x: &Tensor, entries: &[Index]) -> Result<Slice> {
    let from = x.shape();
    let dots = entries.iter().filter(|e| **e == Index::Ellipsis).count();
    let named = entries.len() - dots;
    if dots > 1 || named > from.rank() {
        return Err(Error::shape(op, format!("{named} entries and {dots} ellipses for shape {from}")));
    }
    let mut slice = Slice::whole(op, from);
    let mut d = 0;
    for entry in entries {
        if *entry == Index::Ellipsis {
            d += slice.from.rank() - named;
            continue;
        }
        let Some((start, len, step)) = entry.resolve(slice.from.dims()[d]) else {
            return Err(Error::shape(op, format!("{entry} is out of range for dim {d} of shape {}", slice.from)));
        };
        (slice.start[d], slice.len[d], slice.step[d]) = (start, len, step);
        slice.drop |= u32::from(matches!(entry, Index::Select(_))) << d;
        d += 1;
    }
    Ok(slice)
}

#[track_caller]
fn part(x: &Tensor, entries: &[Index]) -> Result<Tensor> {
    let slice = slice("index", x, entries)?;
    if slice.drop == 0 && slice.len[..] == *slice.from.dims() {
        return Ok(x.clone());
    }
    apply(slice, &[x])
}

#[track_caller]
fn assign(x: &Tensor, entries: &[Index], src: &Tensor) -> Result<Tensor> {
    let part = slice("slice_assign", x, entries)?;
    apply(Assign { part, src: src.shape() }, &[x, src])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    fn x() -> Result<Tensor> {
        Tensor::from_vec((0..24).collect::<Vec<i64>>(), (2, 3, 4), &Device::cpu())
    }

    #[test]
    fn positions_and_ranges() -> Result<()> {
        assert_eq!(x()?.i((.., 0..2, 3))?.to_vec2::<i64>()?, [[3, 7], [15, 19]]);
        assert_eq!(x()?.i((1, 2, -1))?.to_scalar::<i64>()?, 23);
        assert_eq!(x()?.i(1)?.dims(), [3, 4]);
        assert_eq!(x()?.i((0, 1..=1, 2..))?.to_vec2::<i64>()?, [[6, 7]]);
        assert_eq!(x()?.i((.., 3..))?.dims(), [2, 0, 4]);
        Ok(())
    }

    #[test]
    fn ranges_count_from_the_back_too() -> Result<()> {
        let n = x()?.dims()[2];
        assert_eq!(x()?.i((0, 0, -3..-1))?.to_vec::<i64>()?, [1, 2]);
        assert_eq!(x()?.i((0, 0, ..=-2))?.to_vec::<i64>()?, [0, 1, 2]);
        assert_eq!(x()?.i((0, 0, -1..))?.to_vec::<i64>()?, [3]);
        assert_eq!(x()?.i((0, 0, 1..n))?.to_vec::<i64>()?, [1, 2, 3]);
        Ok(())
    }

    #[test]
    fn steps_and_ellipses() -> Result<()> {
        assert_eq!(x()?.i((Index::Ellipsis, 1))?.to_vec2::<i64>()?, [[1, 5, 9], [13, 17, 21]]);
        assert_eq!(x()?.i((1, Index::Ellipsis, 0))?.to_vec::<i64>()?, [12, 16, 20]);
        assert_eq!(x()?.i((0, 0, 0, Index::Ellipsis))?.to_scalar::<i64>()?, 0);
        assert_eq!(x()?.i((0, Index::step(.., 2), Index::step(1.., 3)))?.to_vec2::<i64>()?, [[1], [9]]);
        assert_eq!(x()?.i((0, 0, Index::step(0..4, 3)))?.to_vec::<i64>()?, [0, 3]);
        assert_eq!(x()?.i((0, 0, Index::step(4.., 3)))?.dims(), [0]);
        assert_eq!(x()?.i((1, 1, Index::step(.., usize::MAX)))?.to_vec::<i64>()?, [16]);
        assert!(x()?.i(Index::step(.., 0)).is_err());
        assert!(x()?.i((Index::Ellipsis, Index::Ellipsis)).is_err());
        Ok(())
    }

    #[test]
    fn indexing_goes_through_other_views() -> Result<()> {
        let view = x()?.transpose(0, 2)?.i((1..3, .., 1))?;
        assert_eq!(view.to_vec2::<i64>()?, [[13, 17, 21], [14, 18, 22]]);
        Ok(())
    }

    #[test]
    fn out_of_range_names_entry_and_shape() -> Result<()> {
        for (found, entry) in
            [(x()?.i(2), "2"), (x()?.i((.., -4)), "-4"), (x()?.i((0, 2..4)), "2..4"), (x()?.i((.., .., ..=4)), "..=4")]
        {
            let e = found.unwrap_err().to_string();
            assert!(e.starts_with(&format!("index: {entry} ")) && e.contains("[2, 3, 4]"), "{e}");
        }
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 2..1;
        assert!(x()?.i(reversed).is_err());
        assert!(x()?.i(-3..).is_err());
        assert!(x()?.i((0, 0, 0, 0)).is_err());
        assert!(x()?.i((0, 0, 0, Index::Ellipsis, 0)).is_err());
        assert!(x()?.i(usize::MAX).is_err());
        Ok(())
    }
}
