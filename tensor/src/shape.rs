//! Shapes: made from tuples, broadcast as in NumPy; dims counted from either end.

use crate::{DType, Error, Result};
use kiln_kernels::{Dims, MAX_RANK};
use std::fmt;

/// The sizes of a tensor's dims. Made from `()`, `n`, tuples, arrays, slices and vectors of `usize`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Shape(pub(crate) Dims);

impl Shape {
    /// The sizes.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }
    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.0.len()
    }
    /// Whether it is the shape of a tensor without elements, whatever its other dims.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.contains(&0) && self.rank() <= MAX_RANK
    }
    /// Number of elements (1 for no dims), or an error where elements or bytes overflow (also those of an empty shape without its
    /// dims of 0), or the rank is over 8.
    pub(crate) fn checked_elements(&self, op: &'static str, dtype: DType) -> Result<usize> {
        let overflow = || Error::SizeOverflow { shape: self.clone(), dtype };
        // Dims of 0 count as 1, as in NumPy: then no product of some of the dims overflows either, of which kernels take many.
        let product = |n: usize, &d: &usize| n.checked_mul(d.max(1));
        let n = self.0.iter().try_fold(1, product).ok_or_else(overflow)?;
        n.checked_mul(dtype.size()).filter(|&bytes| bytes <= isize::MAX as usize).ok_or_else(overflow)?;
        let n = if self.0.contains(&0) { 0 } else { n };
        if self.rank() > MAX_RANK {
            return Err(Error::shape(op, format!("shape {self} has {} dims; at most {MAX_RANK} are supported", self.rank())));
        }
        Ok(n)
    }

    /// The shape two operands broadcast to: aligned at the last dim, sizes equal or one of them 1.
    pub fn broadcast(&self, other: &Shape, op: &'static str) -> Result<Shape> {
        let rank = self.rank().max(other.rank());
        let at = |s: &Shape, i: usize| (i + s.rank()).checked_sub(rank).map_or(1, |j| s.0[j]);
        let mut dims = Dims::new();
        for i in 0..rank {
            dims.push(match (at(self, i), at(other, i)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return Err(Error::shape(op, format!("shapes {self} and {other} do not broadcast"))),
            });
        }
        Ok(Shape(dims))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}

impl From<()> for Shape {
    fn from(_: ()) -> Shape {
        Shape::default()
    }
}
impl From<usize> for Shape {
    fn from(n: usize) -> Shape {
        Shape(Dims::from_slice(&[n]))
    }
}
impl From<(usize,)> for Shape {
    fn from(n: (usize,)) -> Shape {
        n.0.into()
    }
}
impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape(dims.into())
    }
}
impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape(dims.into())
    }
}
impl From<&Vec<usize>> for Shape {
    fn from(dims: &Vec<usize>) -> Shape {
        dims.as_slice().into()
    }
}
impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}
impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        dims.as_slice().into()
    }
}
impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(dims: &[usize; N]) -> Shape {
        dims.as_slice().into()
    }
}
macro_rules! from_tuple {
    ($($name:ident: $t:ty),*) => {
        impl From<($($t,)*)> for Shape {
            fn from(($($name,)*): ($($t,)*)) -> Shape {
                [$($name),*].into()
            }
        }
    };
}
from_tuple!(a: usize, b: usize);
from_tuple!(a: usize, b: usize, c: usize);
from_tuple!(a: usize, b: usize, c: usize, d: usize);
from_tuple!(a: usize, b: usize, c: usize, d: usize, e: usize);

/// A dim, counted from the front or, where negative, from the back: -1 is the last.
pub trait Dim: Copy {
    /// Its index among `rank` dims.
    fn resolve(self, op: &'static str, shape: &Shape) -> Result<usize>;
}

macro_rules! dim {
    ($($t:ty),*) => {$(
        impl Dim for $t {
            #[allow(unused_comparisons)]
            fn resolve(self, op: &'static str, shape: &Shape) -> Result<usize> {
                let rank = shape.rank() as i64;
                let d = self as i64;
                let index = if self < (0 as $t) { d + rank } else { d };
                if index < 0 || index >= rank {
                    return Err(Error::shape(op, format!("dim {self} is out of range for shape {shape}")));
                }
                Ok(index as usize)
            }
        }
    )*};
}
dim!(usize, i32, i64, isize);

/// Dims to reduce: one (`-1`), several (`[0, 2]`), or all (`()`).
pub trait DimList {
    /// A mask with bit `d` set for each dim `d` of the list.
    fn mask(&self, op: &'static str, shape: &Shape) -> Result<u32>;
}

impl DimList for () {
    fn mask(&self, _: &'static str, shape: &Shape) -> Result<u32> {
        Ok(((1u64 << shape.rank()) - 1) as u32)
    }
}
macro_rules! one_dim {
    ($($t:ty),*) => {$(
        impl DimList for $t {
            fn mask(&self, op: &'static str, shape: &Shape) -> Result<u32> {
                Ok(1 << self.resolve(op, shape)?)
            }
        }
    )*};
}
one_dim!(usize, i32, i64, isize);
impl<D: Dim> DimList for [D] {
    fn mask(&self, op: &'static str, shape: &Shape) -> Result<u32> {
        dims_mask(op, shape, self)
    }
}
impl<D: Dim, const N: usize> DimList for [D; N] {
    fn mask(&self, op: &'static str, shape: &Shape) -> Result<u32> {
        dims_mask(op, shape, self)
    }
}
impl<D: Dim> DimList for Vec<D> {
    fn mask(&self, op: &'static str, shape: &Shape) -> Result<u32> {
        dims_mask(op, shape, self)
    }
}
impl<L: DimList + ?Sized> DimList for &L {
    fn mask(&self, op: &'static str, shape: &Shape) -> Result<u32> {
        (**self).mask(op, shape)
    }
}

/// Resolves a list of dims into a bit mask; repeated dims are an error. An empty list means all dims.
pub(crate) fn dims_mask<D: Dim>(op: &'static str, shape: &Shape, dims: &[D]) -> Result<u32> {
    if dims.is_empty() {
        return Ok(((1u64 << shape.rank()) - 1) as u32);
    }
    let mut mask = 0u32;
    for &d in dims {
        let bit = 1 << d.resolve(op, shape)?;
        if mask & bit != 0 {
            return Err(Error::shape(op, format!("a dim is listed twice for shape {shape}")));
        }
        mask |= bit;
    }
    Ok(mask)
}
