//! A reduction seen as few dims: kept dims in the order of the output, reduced dims from the widest stride to the narrowest.

use super::Reduction;
use crate::{DType, Layout};
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

    /// Whether each output folds a long run of elements that lie side by side.
    pub fn by_row(&self) -> bool {
        self.count >= 128 && self.reduced.len() == 1 && self.reduced[0].1 == 1
    }

    /// Of 256 threads of a block, how many stand side by side on different outputs (or packs of `vec` outputs), the others sharing one output's
    /// elements; and whether those of one output are neighbours.
    pub fn block(&self, vec: usize) -> (usize, bool) {
        let count = self.count.clamp(1, 256).next_power_of_two();
        match self.by_column() {
            true => (256 / count.min(256 / self.outputs.div_ceil(vec).clamp(1, 32).next_power_of_two()), false),
            false => (256 / count, true),
        }
    }

    /// How folds are split so that a CUDA device is busy; decided by dims alone, since the scratch memory depends on it.
    pub fn split(&self) -> Split {
        let (blocks, wanted, least) = match (self.by_row(), self.block(1)) {
            (true, _) => (self.outputs, 1024, 8192),
            (_, (across, true)) => (self.outputs.div_ceil(across), 512, 16 * (256 / across)),
            (_, (across, false)) => (self.outputs.div_ceil(4 * across), 512, 16 * (256 / across)),
        };
        let parts = (wanted / blocks.max(1)).min(self.count / least).max(1);
        let part = self.count.div_ceil(parts).next_multiple_of(64).max(64);
        Split { parts: self.count.div_ceil(part).max(1), part }
    }

    /// The plan of folding the results of parts; those of an output lie side by side where folds run along rows.
    pub fn second(&self, split: Split) -> Plan {
        let (by_row, parts) = (self.by_row(), split.parts);
        let (kept, reduced) = if by_row { (parts, 1) } else { (1, self.outputs) };
        Plan {
            kept: SmallVec::from_elem((self.outputs, kept), 1),
            reduced: SmallVec::from_elem((parts, reduced), 1),
            outputs: self.outputs,
            count: parts,
        }
    }
}

/// Folds in `parts` of `part` elements; the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub parts: usize,
    pub part: usize,
}

/// The type of running values: sums and products of integers are kept in i64, those of floats with an f64 result in f64.
pub(super) fn accumulator(op: Reduction, from: DType, to: DType) -> DType {
    match op {
        Reduction::Sum | Reduction::Product if !from.is_float() => DType::I64,
        Reduction::Sum | Reduction::Product | Reduction::Mean if to == DType::F64 => DType::F64,
        _ => from.accumulator(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(dims: &[usize], strides: &[usize], reduced: u32) -> Plan {
        Plan::new(&Layout::new(dims, strides, 0), reduced)
    }

    #[test]
    fn reducing_all_of_a_permuted_tensor_is_one_run() {
        let p = plan(&[3, 4, 5], &[1, 15, 3], 0b111);
        assert_eq!((&p.kept[..], &p.reduced[..], p.outputs, p.count), (&[][..], &[(60, 1)][..], 1, 60));
    }

    #[test]
    fn dims_of_one_kind_merge_and_dims_of_one_vanish() {
        let p = plan(&[2, 1, 3, 4], &[12, 12, 4, 1], 0b1000);
        assert_eq!((&p.kept[..], &p.reduced[..]), (&[(6, 4)][..], &[(4, 1)][..]));
        assert!(!p.by_column());
        assert!(plan(&[8, 6], &[6, 1], 0b01).by_column());
    }

    #[test]
    fn parts_cover_the_fold() {
        for (dims, reduced) in
            [([1, 1 << 20], 0b10), ([1 << 20, 3], 0b01), ([300_000, 700], 0b01), ([7, 100_001], 0b10), ([5, 0], 0b10)]
        {
            let p = Plan::new(&Layout::contiguous(&dims), reduced);
            let Split { parts, part } = p.split();
            assert!(parts * part >= p.count && (parts == 1 || (parts - 1) * part < p.count), "{dims:?}: {parts} of {part}");
        }
    }
}
