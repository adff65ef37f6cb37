//! CUDA launches.

use super::{Compare, Comparison, Select, check_compare, check_select};
use crate::cuda::map::{Functor, Operand, all_kernels, bits_type, no_text};
use crate::cuda::{Cuda, Source, SourceText, Variant};
use crate::{DType, Result};
use kiln_alloc::{Stream, Write};

static SOURCE: Source =
    Source { name: "compare", texts: &[include_str!("../../cuda/map.cuh"), include_str!("../../cuda/compare.cu")], fmad: false };
const NAMES: [&str; 6] = ["Eq", "Ne", "Lt", "Le", "Gt", "Ge"];
const SELECT: Functor<'static> = Functor { source: &SOURCE, id: NAMES.len() as u32, name: "Select", text: no_text };

fn functor(op: Comparison) -> Functor<'static> {
    Functor { source: &SOURCE, id: op as u32, name: NAMES[op as usize], text: no_text }
}

pub(super) fn compare(k: Compare<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    check_compare(&k)?;
    let inputs = [Operand::input(&k.a), Operand::input(&k.b)];
    // SAFETY: operands come from the tokens of the kernel's arguments, which are alive; the destination is contiguous.
    unsafe { cuda.map(functor(k.op), [0.0; 2], Operand::output(&k.out), &inputs, stream) }
}

pub(super) fn select(k: Select<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    check_select(&k)?;
    let inputs = [Operand::input(&k.mask), Operand::input(&k.a).bits(), Operand::input(&k.b).bits()];
    // SAFETY: as above.
    unsafe { cuda.map(SELECT, [0.0; 2], Operand::output(&k.out).bits(), &inputs, stream) }
}

pub(crate) fn sources() -> Vec<SourceText> {
    let mut list = Vec::new();
    for dtype in DType::ALL {
        let comparisons: String = NAMES.iter().map(|name| all_kernels(name, name, 2)).collect();
        list.push(SOURCE.listed(Variant::types(&[DType::U8, dtype, dtype]), &comparisons));
        if bits_type(dtype) == dtype {
            list.push(SOURCE.listed(Variant::types(&[dtype, DType::U8, dtype, dtype]), &all_kernels("Select", "select", 3)));
        }
    }
    list
}
