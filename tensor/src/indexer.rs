//! `t.i((.., 0..2, 3))`: parts of a tensor by ranges and positions, one entry a dim, as one view.

use crate::op::apply;
use crate::ops::narrow::Slice;
use crate::{Error, Result, Tensor};
use std::fmt;
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// What to take of one dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One position, from the back where negative; the dim vanishes.
    Select(i64),
    /// A range of positions.
    Narrow(Bound<usize>, Bound<usize>),
    /// All of it.
    Full,
}

macro_rules! from_position {
    ($($t:ty),*) => {$(
        impl From<$t> for Index {
            fn from(position: $t) -> Index {
                // A position past i64 is out of range for any dim all the same.
                Index::Select(i64::try_from(position).unwrap_or(i64::MAX))
            }
        }
    )*};
}
from_position!(usize, i32, i64);

macro_rules! from_range {
    ($($t:ty),*) => {$(
        impl From<$t> for Index {
            fn from(range: $t) -> Index {
                Index::Narrow(range.start_bound().cloned(), range.end_bound().cloned())
            }
        }
    )*};
}
from_range!(Range<usize>, RangeFrom<usize>, RangeInclusive<usize>, RangeTo<usize>, RangeToInclusive<usize>);

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::Full
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Index::Select(position) => write!(f, "{position}"),
            Index::Full => f.write_str(".."),
            Index::Narrow(start, end) => {
                match start {
                    Bound::Included(n) => write!(f, "{n}..")?,
                    Bound::Excluded(n) => write!(f, "{}..", n.saturating_add(1))?,
                    Bound::Unbounded => f.write_str("..")?,
                }
                match end {
                    Bound::Included(n) => write!(f, "={n}"),
                    Bound::Excluded(n) => write!(f, "{n}"),
                    Bound::Unbounded => Ok(()),
                }
            }
        }
    }
}

impl Index {
    /// First position and number of positions in a dim of `size`, where they exist.
    fn resolve(self, size: usize) -> Option<(usize, usize)> {
        let (start, end) = match self {
            Index::Full => (0, size),
            Index::Select(position) => {
                let back = if position < 0 { i64::try_from(size).ok()? } else { 0 };
                let position = usize::try_from(position.checked_add(back)?).ok()?;
                (position, position.checked_add(1)?)
            }
            Index::Narrow(start, end) => {
                let start = match start {
                    Bound::Included(n) => n,
                    Bound::Excluded(n) => n.checked_add(1)?,
                    Bound::Unbounded => 0,
                };
                let end = match end {
                    Bound::Included(n) => n.checked_add(1)?,
                    Bound::Excluded(n) => n,
                    Bound::Unbounded => size,
                };
                (start, end)
            }
        };
        (end <= size).then(|| end.checked_sub(start)).flatten().map(|len| (start, len))
    }
}

/// Indexing by a position, a range, or a tuple of up to five of them, for the first dims; later dims stay whole.
///
/// ```
/// # use kiln_tensor::{Tensor, Device, IndexOp};
/// let x = Tensor::from_vec(vec![1i64, 2, 3, 4, 5, 6], (2, 3), &Device::cpu())?;
/// assert_eq!(x.i((.., 1..))?.to_vec2::<i64>()?, [[2, 3], [5, 6]]);
/// assert_eq!(x.i((-1, ..2))?.to_vec1::<i64>()?, [4, 5]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
pub trait IndexOp<T> {
    /// The part that `index` names; shares memory.
    ///
    /// # Errors
    /// Where a position or range is out of range, or there are more entries than dims.
    fn i(&self, index: T) -> Result<Tensor>;
}

impl<A: Into<Index>> IndexOp<A> for Tensor {
    #[track_caller]
    fn i(&self, index: A) -> Result<Tensor> {
        part(self, &[index.into()])
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
        }
    };
}
tuples!(A);
tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);
tuples!(A, B, C, D, E);

#[track_caller]
fn part(x: &Tensor, entries: &[Index]) -> Result<Tensor> {
    let from = x.shape();
    if entries.len() > from.rank() {
        return Err(Error::shape("index", format!("{} entries for shape {from}", entries.len())));
    }
    let mut op = Slice { name: "index", start: from.dims().iter().map(|_| 0).collect(), len: from.dims().into(), from, drop: 0 };
    for (d, entry) in entries.iter().enumerate() {
        let Some((start, len)) = entry.resolve(op.from.dims()[d]) else {
            return Err(Error::shape("index", format!("{entry} is out of range for dim {d} of shape {}", op.from)));
        };
        (op.start[d], op.len[d]) = (start, len);
        op.drop |= u32::from(matches!(entry, Index::Select(_))) << d;
    }
    if op.drop == 0 && op.len[..] == *op.from.dims() {
        return Ok(x.clone());
    }
    apply(op, &[x])
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
        assert!(x()?.i((0, 0, 0, 0)).is_err());
        assert!(x()?.i(usize::MAX).is_err());
        Ok(())
    }
}
