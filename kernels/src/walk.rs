//! Elements of any layout in row-major order, a chunk at a time: CPU kernels compute over contiguous chunks that fit the fastest cache, and
//! only gathering and scattering knows of strides.

use crate::{Arg, KernelError, Layout, OutArg, Result};
use bytemuck::Pod;
use smallvec::SmallVec;

/// Elements of a chunk.
pub(crate) const CHUNK: usize = 1024;
/// Elements of a piece of work for one thread, a few chunks.
pub(crate) const PIECE: usize = 1 << 14;

/// The way through the elements of a layout, from its first element on.
pub(crate) struct Walk {
    /// Sizes and strides, outermost first; neighbours that lie as one dim are one.
    dims: SmallVec<[(usize, usize); 4]>,
}

impl Walk {
    pub fn new(layout: &Layout) -> Walk {
        let mut dims: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (&size, &stride) in layout.dims().iter().zip(layout.strides()).filter(|(size, _)| **size != 1) {
            match dims.last_mut() {
                Some((outer, outer_stride)) if *outer_stride == stride * size => {
                    (*outer, *outer_stride) = (*outer * size, stride)
                }
                _ => dims.push((size, stride)),
            }
        }
        if dims.is_empty() {
            dims.push((1, 1));
        }
        Walk { dims }
    }

    /// Whether element `i` lies at `i`.
    fn is_dense(&self) -> bool {
        self.dims.len() == 1 && self.dims[0].1 == 1
    }

    /// Calls `f(done, place, length, stride)` for each run of elements `start..start + len`: element `start + done + i` of the walk lies at
    /// `place + i * stride`.
    fn runs(&self, start: usize, len: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
        let (&(inner, stride), outer) = self.dims.split_last().expect("a walk has a dim");
        let (mut row, mut column, mut done) = (start / inner, start % inner, 0);
        while done < len {
            let mut rest = row;
            let mut place = 0;
            for &(size, stride) in outer.iter().rev() {
                place += rest % size * stride;
                rest /= size;
            }
            let run = (inner - column).min(len - done);
            f(done, place + column * stride, run, stride);
            done += run;
            column = 0;
            row += 1;
        }
    }

    /// Copies elements `start..start + buffer.len()` of `data` into `buffer`.
    pub fn gather<T: Copy>(&self, data: &[T], start: usize, buffer: &mut [T]) {
        self.runs(start, buffer.len(), |done, place, length, stride| {
            let buffer = &mut buffer[done..done + length];
            match stride {
                0 => buffer.fill(data[place]),
                1 => buffer.copy_from_slice(&data[place..place + length]),
                _ => buffer.iter_mut().zip(data[place..].iter().step_by(stride)).for_each(|(b, &v)| *b = v),
            }
        });
    }

    /// Copies `buffer` to elements `start..start + buffer.len()` of `data`.
    pub fn scatter<T: Copy>(&self, data: &mut [T], start: usize, buffer: &[T]) {
        self.runs(start, buffer.len(), |done, place, length, stride| {
            let buffer = &buffer[done..done + length];
            match stride {
                1 => data[place..place + length].copy_from_slice(buffer),
                _ => data[place..].iter_mut().step_by(stride.max(1)).zip(buffer).for_each(|(v, &b)| *v = b),
            }
        });
    }
}

/// An operand's elements and the way through them.
pub(crate) struct Input<'a, T> {
    data: &'a [T],
    walk: Walk,
}

impl<'a, T: Pod> Input<'a, T> {
    /// Any layout; `T` has the size of the operand's element type, of which it may be the bits.
    pub fn new(arg: &Arg<'a>) -> Result<Input<'a, T>> {
        if arg.layout.elements() == 0 {
            return Ok(Input { data: &[], walk: Walk::new(arg.layout) });
        }
        let bytes = arg.token.as_slice().ok_or_else(not_host)?;
        Ok(Input { data: typed(bytes.get(byte_range::<T>(arg.layout)).ok_or_else(not_host)?)?, walk: Walk::new(arg.layout) })
    }

    /// Elements `start..start + len`: in place where they lie side by side, else gathered into `buffer`.
    pub fn chunk<'b>(&'b self, start: usize, len: usize, buffer: &'b mut Vec<T>) -> &'b [T] {
        if self.walk.is_dense() {
            return &self.data[start..start + len];
        }
        let buffer = room(buffer, len);
        self.walk.gather(self.data, start, buffer);
        buffer
    }
}

/// The elements of a destination, from its first to its last; `T` has the size of its element type.
pub(crate) fn output<'b, T: Pod>(out: &'b mut OutArg<'_>) -> Result<&'b mut [T]> {
    if out.layout.elements() == 0 {
        return Ok(&mut []);
    }
    let range = byte_range::<T>(out.layout);
    let bytes = out.token.as_mut_slice().ok_or_else(not_host)?;
    bytemuck::try_cast_slice_mut(bytes.get_mut(range).ok_or_else(not_host)?).map_err(|_| not_host())
}

fn byte_range<T>(layout: &Layout) -> std::ops::Range<usize> {
    layout.offset() * size_of::<T>()..layout.extent() * size_of::<T>()
}

fn typed<T: Pod>(bytes: &[u8]) -> Result<&[T]> {
    bytemuck::try_cast_slice(bytes).map_err(|_| not_host())
}

fn not_host() -> KernelError {
    KernelError::Library("an operand of a CPU kernel does not lie in host memory".to_owned())
}

/// The first `len` elements of a buffer that grows where it is too small.
pub(crate) fn room<T: Pod>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        buffer.resize(len, T::zeroed());
    }
    &mut buffer[..len]
}

/// `(start, length)` of each chunk of `len` elements from `start` on.
pub(crate) fn chunks(start: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(CHUNK).map(move |i| (start + i, CHUNK.min(len - i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(layout: &Layout, start: usize, len: usize) -> Vec<usize> {
        let data: Vec<usize> = (layout.offset()..layout.extent()).collect();
        let mut buffer = vec![0; len];
        Walk::new(layout).gather(&data, start, &mut buffer);
        buffer
    }

    #[test]
    fn gathers_in_row_major_order_from_anywhere() {
        let transposed = Layout::new(&[2, 3], &[1, 2], 0);
        assert_eq!(gathered(&transposed, 0, 6), [0, 2, 4, 1, 3, 5]);
        assert_eq!(gathered(&transposed, 2, 3), [4, 1, 3]);
        let broadcast = Layout::new(&[2, 3], &[0, 1], 7);
        assert_eq!(gathered(&broadcast, 1, 4), [8, 9, 7, 8]);
        let column = Layout::new(&[2, 3], &[1, 0], 0);
        assert_eq!(gathered(&column, 2, 3), [0, 1, 1]);
    }

    #[test]
    fn joins_dims_that_lie_as_one() {
        assert!(Walk::new(&Layout::contiguous(&[2, 1, 3, 4])).is_dense());
        assert_eq!(Walk::new(&Layout::new(&[2, 3, 4], &[24, 4, 1], 0)).dims.as_slice(), [(2, 24), (12, 1)]);
    }

    #[test]
    fn scatter_undoes_gather() {
        let layout = Layout::new(&[3, 2, 2], &[1, 12, 6], 0);
        let mut data = vec![usize::MAX; layout.extent()];
        let walk = Walk::new(&layout);
        walk.scatter(&mut data, 0, &(0..12).collect::<Vec<_>>());
        let mut back = vec![0; 12];
        walk.gather(&data, 0, &mut back);
        assert_eq!(back, (0..12).collect::<Vec<_>>());
    }
}
