//! Autocast: what `apply` does to inputs before anything is computed or saved. Casts are recorded as ops of their own, so gradients come back in
//! the type of the weight. Only the cast *memory* of a leaf is cached, with its storage and version: every use records a fresh cast node, so
//! micro-batches, no-grad regions and updates cannot go stale.

use crate::op::Autocast;
use crate::tape::History;
use crate::{DType, Layout, Result, Tensor};
use smallvec::SmallVec;

pub(crate) fn cast_inputs(kind: Autocast, low: DType, inputs: &[&Tensor]) -> Result<SmallVec<[Tensor; 3]>> {
    let target = match kind {
        Autocast::Keep => None,
        Autocast::Low => Some(low),
        Autocast::Full => Some(DType::F32),
        Autocast::Widest => widest(inputs),
    };
    inputs
        .iter()
        .map(|&t| match target {
            // f64 and integers are never touched.
            Some(to) if to != t.dtype() && matches!(t.dtype(), DType::F32 | DType::F16 | DType::BF16) => cast(t, to),
            _ => Ok(t.clone()),
        })
        .collect()
}

fn widest(inputs: &[&Tensor]) -> Option<DType> {
    let mut floats = inputs.iter().map(|t| t.dtype()).filter(|d| d.is_float());
    let first = floats.next()?;
    // f16 with bf16 meet at f32: neither holds the other.
    Some(floats.fold(first, |a, b| match (a, b) {
        _ if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    }))
}

fn cast(t: &Tensor, to: DType) -> Result<Tensor> {
    let whole = t.layout().offset() == 0 && t.is_contiguous() && t.storage().bytes() == t.elem_count() * t.dtype().size();
    if !(whole && matches!(t.history(), History::Leaf(_))) {
        return t.to_dtype(to);
    }
    let version = t.storage().version();
    let cached = match t.storage().cached_cast(to) {
        Some(storage) => storage,
        None => {
            let made = crate::modes::no_grad(|| t.detach().to_dtype(to))?;
            t.storage().cache_cast(to, version, made.storage().clone());
            made.storage().clone()
        }
    };
    let value = Tensor::from_parts(cached, Layout::contiguous(t.dims()), to, History::None);
    crate::op::apply(crate::ops::cast::CachedCast { from: t.dtype(), value }, &[t])
}
