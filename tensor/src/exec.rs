//! What ops share to reach kernels: new tensors, tokens, and sums of gradients.

use crate::tape::History;
use crate::{DType, Device, Layout, Result, Shape, Storage, Tensor, modes};
use kiln_alloc::Stream;
use kiln_kernels::copy::Copy;
use kiln_kernels::elementwise::{Map, MapInPlace, Row};
use kiln_kernels::{Arg, OutArg};
use std::panic::Location;
use std::sync::Arc;

/// A new tensor without elements. Its dims may be of any size, also such that ops refuse it since products of them overflow.
#[track_caller]
pub(crate) fn nothing(shape: &Shape, dtype: DType, device: &Device) -> Result<Tensor> {
    allocate(0, shape, dtype, device)
}

/// A new contiguous tensor with undefined contents.
#[track_caller]
pub(crate) fn empty(op: &'static str, shape: &Shape, dtype: DType, device: &Device) -> Result<Tensor> {
    allocate(shape.checked_elements(op, dtype)? * dtype.size(), shape, dtype, device)
}

#[track_caller]
fn allocate(bytes: usize, shape: &Shape, dtype: DType, device: &Device) -> Result<Tensor> {
    let (category, site) = modes::with(|m| (m.category, m.site));
    let block = device.allocator().allocate_at(bytes, &device.stream(), category, site.unwrap_or(Location::caller()))?;
    let storage = Arc::new(Storage::new(block, device.clone()));
    Ok(Tensor::from_parts(storage, Layout::contiguous(shape.dims()), dtype, History::None))
}

/// A new tensor filled by `f`, which is given the destination.
#[track_caller]
pub(crate) fn fill_new(
    op: &'static str,
    shape: &Shape,
    dtype: DType,
    device: &Device,
    f: impl FnOnce(OutArg<'_>, &Stream) -> Result<()>,
) -> Result<Tensor> {
    let out = empty(op, shape, dtype, device)?;
    let stream = device.stream();
    let mut token = out.storage().write_new(&stream)?;
    f(OutArg::new(&mut token, dtype, out.layout()), &stream)?;
    drop(token);
    Ok(out)
}

/// `out = row(inputs..)` into a new tensor of `shape`; inputs broadcast to it and have one element type.
#[track_caller]
pub(crate) fn map(op: &'static str, row: &'static Row, params: [f64; 2], inputs: &[&Tensor], shape: &Shape) -> Result<Tensor> {
    let (device, dtype) = (inputs[0].device(), inputs[0].dtype());
    fill_new(op, shape, dtype, device, |out, stream| {
        let views = inputs.iter().map(|t| broadcast_view(op, t, shape)).collect::<Result<Vec<_>>>()?;
        let tokens = inputs.iter().map(|t| t.storage().read(stream)).collect::<Result<Vec<_>>>()?;
        let args: Vec<Arg<'_>> = tokens.iter().zip(&views).map(|(token, layout)| Arg::new(token, dtype, layout)).collect();
        device.run(Map { row, params, inputs: &args, out }, stream)
    })
}

/// `x = row(x, others..)` in place. The caller has made sure that nobody else reads `x`, or bumps its version.
pub(crate) fn map_in_place(op: &'static str, row: &'static Row, params: [f64; 2], x: &Tensor, others: &[&Tensor]) -> Result<()> {
    let (device, dtype, shape) = (x.device(), x.dtype(), x.shape());
    let stream = device.stream();
    let views = others.iter().map(|t| broadcast_view(op, t, &shape)).collect::<Result<Vec<_>>>()?;
    let tokens = others.iter().map(|t| t.storage().read(&stream)).collect::<Result<Vec<_>>>()?;
    let others: Vec<Arg<'_>> = tokens.iter().zip(&views).map(|(token, layout)| Arg::new(token, dtype, layout)).collect();
    let mut token = x.storage().write(&stream, op)?;
    device.run(MapInPlace { row, params, x: OutArg::new(&mut token, dtype, x.layout()), others: &others }, &stream)
}

/// Where the elements of `t` lie once it is broadcast to `shape`.
pub(crate) fn broadcast_view(op: &'static str, t: &Tensor, shape: &Shape) -> Result<Layout> {
    t.layout()
        .broadcast_to(shape.dims())
        .ok_or_else(|| crate::Error::shape(op, format!("shape {} does not broadcast to {shape}", t.shape())))
}

/// The elements of `t` in new contiguous memory, in another element type or the same.
#[track_caller]
pub(crate) fn copy_as(op: &'static str, t: &Tensor, dtype: DType) -> Result<Tensor> {
    fill_new(op, &t.shape(), dtype, t.device(), |out, stream| {
        let token = t.storage().read(stream)?;
        t.device().run(Copy { x: Arg::new(&token, t.dtype(), t.layout()), out }, stream)
    })
}

/// The elements of `t` in new contiguous memory.
#[track_caller]
pub(crate) fn copy_of(t: &Tensor) -> Result<Tensor> {
    copy_as("copy", t, t.dtype())
}

/// `t`, or a contiguous copy of it.
#[track_caller]
pub(crate) fn contiguous(t: &Tensor) -> Result<Tensor> {
    if t.is_contiguous() { Ok(t.detach()) } else { copy_as("contiguous", t, t.dtype()) }
}

/// `sum + grad`, in the memory of `sum` where nobody else holds it.
#[track_caller]
pub(crate) fn add_into(sum: Tensor, grad: &Tensor) -> Result<Tensor> {
    let row = kiln_kernels::elementwise::row("add");
    let distinct = sum.layout().strides().iter().zip(sum.dims()).all(|(&s, &d)| s != 0 || d <= 1);
    if sum.is_unique() && distinct && !Arc::ptr_eq(sum.storage(), grad.storage()) {
        map_in_place("accumulate", row, [0.0; 2], &sum, &[grad])?;
        Ok(sum)
    } else {
        map("accumulate", row, [0.0; 2], &[&sum, grad], &sum.shape())
    }
}
