//! A reduction seen as few dims: kept dims in the order of the output, reduced dims from the widest stride to the narrowest.

use crate::Layout;
use smallvec::SmallVec;

/// Size and stride of a dim, in elements.
pub(super) type Dim = (usize, usize);

/// What a reduction walks over. Neighbouring dims that step evenly are merged, dims of size 1 are gone.
pub(super) struct Plan {
    /// Kept dims, outermost first; output `o` is element `o` of them, row-major.
    pub kept: SmallVec<[Dim; 4]>,
    /// Reduced dims, at least one.
    pub reduced: SmallVec<[Dim; 4]>,
    /// Number of outputs.
    pub outputs: usize,
    /// Number of elements folded into each.
    pub count: usize,
}

impl Plan {
    /// The plan of reducing the dims whose bits are set in `dims`.
    pub fn new(layout: &Layout, dims: u32) -> Plan {
        let (mut kept, mut reduced) = (SmallVec::new(), SmallVec::<[Dim; 4]>::new());
        let (mut outputs, mut count) = (1, 1);
        for (d, (&size, &stride)) in layout.dims().iter().zip(layout.strides()).enumerate() {
            let is_reduced = dims >> d & 1 == 1;
            *(if is_reduced { &mut count } else { &mut outputs }) *= size;
            if size != 1 {
                (if is_reduced { &mut reduced } else { &mut kept }).push((size, stride));
            }
        }
        reduced.sort_by_key(|&(_, stride)| std::cmp::Reverse(stride));
        let (kept, mut reduced) = (merge(&kept), merge(&reduced));
        if reduced.is_empty() {
            reduced.push((1, 1));
        }
        Plan { kept, reduced, outputs, count }
    }

    /// Whether neighbouring outputs lie closer than neighbouring elements of one fold.
    pub fn by_column(&self) -> bool {
        self.kept.last().is_some_and(|&(_, stride)| stride < self.reduced[self.reduced.len() - 1].1)
    }
}

fn merge(dims: &[Dim]) -> SmallVec<[Dim; 4]> {
    let mut merged = SmallVec::<[Dim; 4]>::new();
    for &(size, stride) in dims {
        match merged.last_mut() {
            Some(last) if last.1 == size * stride => *last = (last.0 * size, stride),
            _ => merged.push((size, stride)),
        }
    }
    merged
}

/// Distance of element `index`, counted row-major over `dims`, from the first.
pub(super) fn offset(dims: &[Dim], mut index: usize) -> usize {
    let mut offset = 0;
    for &(size, stride) in dims.iter().rev() {
        offset += index % size * stride;
        index /= size;
    }
    offset
}
