//! The CUDA sources of this family, for checking that they compile.

use super::cuda::{ANY, ROW, made_number, op_number};
use super::plan::accumulator;
use super::{Made, Reduction};
use crate::DType;
use crate::cuda::{SourceText, Variant};

pub(crate) fn sources() -> Vec<SourceText> {
    let mut sources = Vec::new();
    let rows =
        |types: [DType; 2], op: u32, vec: u32, group: u32| ROW.listed(Variant::new(&types, vec | op << 8 | group << 16), "");
    let any = |types: [DType; 2], op: u32, vec: u32| ANY.listed(Variant::new(&types, vec | op << 8), "");
    for dtype in DType::ALL {
        let vec = 16 / dtype.size() as u32;
        for op in [Reduction::Sum, Reduction::Max, Reduction::Min, Reduction::Product] {
            let (sums, number) = ([dtype, accumulator(op, dtype, dtype)], op_number(op));
            sources.extend([
                rows(sums, number, vec, 32),
                rows(sums, number, 1, 1024),
                any(sums, number, vec),
                any(sums, number, 1),
            ]);
            let indexed = matches!(op, Reduction::Max | Reduction::Min) && sums[1] != DType::I64;
            sources.extend(indexed.then(|| any([dtype, DType::I64], number, 1)));
        }
        for op in [Made::AbsSum, Made::SquareSum, Made::ExpSum, Made::PowSum(3.0), Made::AbsMax, Made::AbsMin] {
            if dtype.is_float() {
                let (types, number) = ([dtype, op.accumulator(dtype)], made_number(op));
                sources.extend([rows(types, number, vec, 32), any(types, number, vec)]);
            }
        }
    }
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let (up, down) = ([dtype, DType::F64], [DType::F64, dtype]);
        sources.extend([rows(up, 0, 16 / dtype.size() as u32, 32), any(up, 0, 1), rows(down, 0, 1, 32), any(down, 0, 1)]);
    }
    for dtype in [DType::F16, DType::BF16] {
        sources.extend([rows([DType::F32, dtype], 0, 1, 256), any([DType::F32, dtype], 0, 1)]);
    }
    sources
}
