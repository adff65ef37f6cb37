//! CUDA launches: a functor for each row, made from its expression.

use super::{Map, MapInPlace, Row, check, row::MAX_INPUTS, rows, table};
use crate::cuda::map::{Functor, Operand, all_kernels, vector_kernel};
use crate::cuda::{Cuda, Source, SourceText, Variant};
use crate::{DType, Result};
use kiln_alloc::{Stream, Write};
use smallvec::SmallVec;

static SOURCE: Source = Source {
    name: "elementwise",
    texts: &[include_str!("../../cuda/map.cuh"), include_str!("../../cuda/elementwise.cu")],
    fmad: false,
};

/// The functor of a row: stored values are widened, the expression computed, and its value rounded once.
fn functor_text(row: &Row) -> String {
    let list = |text: fn(&str) -> String| row.variables.iter().map(|x| text(x)).collect::<Vec<_>>();
    let arguments = list(|x| format!("T0 stored_{x}")).join(", ");
    let widened = list(|x| format!("C {x} = widen(stored_{x}); ")).concat();
    let (name, expression) = (row.name, row.expression);
    format!(
        "struct Row_{name} {{\n    C p, q;\n    INLINE Row_{name}(f64 p, f64 q) : p(lit(p)), q(lit(q)) {{}}\n    INLINE T0 operator()({arguments}) const {{ \
         {widened}return cast<T0>((C)({expression})); }}\n}};\n"
    )
}

fn run(
    row: &'static Row,
    params: [f64; 2],
    out: Operand<'_>,
    inputs: &[Operand<'_>],
    cuda: &Cuda,
    stream: &Stream,
) -> Result<()> {
    let functor = Functor { source: &SOURCE, id: row.id, name: row.functor, text: |id| functor_text(table::ROWS[id as usize]) };
    // SAFETY: operands come from the tokens of a kernel's arguments, which are alive; the layout of a destination has distinct elements.
    unsafe { cuda.map(functor, params, out, inputs, stream) }
}

pub(super) fn map(k: Map<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let params = check(k.row, k.params, k.inputs, false, &k.out)?;
    let inputs: SmallVec<[Operand<'_>; MAX_INPUTS]> = k.inputs.iter().map(Operand::input).collect();
    run(k.row, params, Operand::output(&k.out), &inputs, cuda, stream)
}

pub(super) fn map_in_place(k: MapInPlace<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let params = check(k.row, k.params, k.others, true, &k.x)?;
    let x = Operand::output(&k.x);
    let inputs: SmallVec<[Operand<'_>; MAX_INPUTS]> = std::iter::once(x).chain(k.others.iter().map(Operand::input)).collect();
    run(k.row, params, x, &inputs, cuda, stream)
}

/// All rows for each element type; kernels for every layout of the first row with each number of inputs, since they differ in that alone.
pub(crate) fn sources() -> Vec<SourceText> {
    let one = |dtype: DType| {
        let mut known = [false; MAX_INPUTS + 1];
        let mut text = String::new();
        for row in rows().iter().filter(|row| row.takes(dtype)) {
            let kernels = if std::mem::replace(&mut known[row.inputs], true) { vector_kernel } else { all_kernels };
            text += &(functor_text(row) + &kernels(row.functor, row.name, row.inputs));
        }
        SOURCE.listed(Variant::types(&[dtype; 1 + MAX_INPUTS]), &text)
    };
    DType::ALL.into_iter().map(one).collect()
}
