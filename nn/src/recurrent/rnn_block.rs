//! Steps of a tanh cell as one op: `h_t = tanh(x_t + h_{t-1}·Wᵀ)`, `x` projected already.
//! With `z_t = (1 - h_t²) (dh_t + z_{t+1}·W)`: `dx_t = z_t`, `dh_0 = z_1·W`, `dW = sum of z_tᵀ·h_{t-1}`, one product for all steps.
//!
//! Three launches a step in each direction, one node for the block, and the outputs are all that is kept.

use kiln_kernels::copy::Copy;
use kiln_kernels::elementwise::{Map, MapInPlace, row};
use kiln_kernels::matmul::MatMul;
use kiln_kernels::{Arg, OutArg};
use kiln_tensor::op::{Autocast, BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply_multi};
use kiln_tensor::saved::SavedTensors;
use kiln_tensor::{Error, Layout, Result, Tensor};
use smallvec::smallvec;

const NAME: &str = "rnn";

/// The outputs `[time, batch, hidden]` and the last of them `[1, batch, hidden]`, from projected inputs `[time, batch, hidden]`, a state
/// `[1, batch, hidden]` and a weight `[hidden, hidden]`.
#[track_caller]
pub(super) fn rnn_block(projected: &Tensor, state: &Tensor, weight: &Tensor) -> Result<(Tensor, Tensor)> {
    let mut results = apply_multi(RnnBlock, &[projected, state, weight])?;
    match (results.pop(), results.pop()) {
        (Some(last), Some(outputs)) => Ok((outputs, last)),
        _ => Err(Error::message("rnn gave fewer than two results")),
    }
}

struct RnnBlock;

impl Op for RnnBlock {
    fn name(&self) -> &'static str {
        NAME
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let turned = inputs[2].detach().t()?;
        let (outputs, carried) = (inputs[0].detach().copy()?, inputs[1].detach().copy()?);
        for t in 0..outputs.dims()[0] {
            // A product cannot read the memory it adds to, so the state goes through a small buffer.
            add_product(&outputs, t, &carried, &turned)?;
            map_into(&carried, "tanh", &[(&outputs, step(&outputs, t))])?;
            copy_into(&outputs, t, &carried)?;
        }
        let last = outputs.narrow(0, outputs.dims()[0] - 1, 1)?;
        Ok(Outputs { results: smallvec![outputs, last], ..Default::default() })
    }
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&outputs.results[0])?;
        keep.tensor(&inputs[2])?;
        if keep.needs(2) { keep.tensor(&inputs[1]) } else { Ok(()) }
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let mut grads = grads.into_iter();
        let (whole, last) = (grads.next().flatten(), grads.next().flatten());
        let (h, weight) = (saved.take(0)?, saved.take(1)?);
        let steps = h.dims()[0];
        let z = match whole {
            Some(g) => g.copy()?,
            None => h.zeros_like()?,
        };
        if let Some(last) = last {
            add_at(&z, steps - 1, &last)?;
        }
        let carried = h.narrow(0, 0, 1)?.copy()?;
        for t in (0..steps).rev() {
            if t + 1 < steps {
                add_product(&z, t, &carried, &weight)?;
            }
            map_into(&carried, "tanh_backward", &[(&h, step(&h, t)), (&z, step(&z, t))])?;
            copy_into(&z, t, &carried)?;
        }
        let d_state = if ctx.needs(1) { Some(carried.matmul(&weight)?) } else { None };
        let d_weight = if ctx.needs(2) { Some(weight_gradient(&z, &h, &saved.take(2)?)?) } else { None };
        Ok(smallvec![ctx.needs(0).then_some(z), d_state, d_weight])
    }
    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

/// `sum over t of z_tᵀ·h_{t-1}`: one product for the first step, one for all others.
fn weight_gradient(z: &Tensor, h: &Tensor, state: &Tensor) -> Result<Tensor> {
    let rows = |t: &Tensor, start: usize, len: usize| t.narrow(0, start, len)?.flatten(0, 1);
    let steps = z.dims()[0];
    let first = rows(z, 0, 1)?.t()?.matmul(&rows(state, 0, 1)?)?;
    if steps == 1 {
        return Ok(first);
    }
    first.add(&rows(z, 1, steps - 1)?.t()?.matmul(&rows(h, 0, steps - 1)?)?)
}

/// Where step `t` of a contiguous `[time, batch, hidden]` lies.
fn step(x: &Tensor, t: usize) -> Layout {
    let (_, batch, hidden) = (x.dims()[0], x.dims()[1], x.dims()[2]);
    Layout::new(&[1, batch, hidden], &[batch * hidden, hidden, 1], x.layout().offset() + t * batch * hidden)
}

/// `out[t] += a·b` for `a` of `[1, batch, hidden]` and a matrix `b`.
fn add_product(out: &Tensor, t: usize, a: &Tensor, b: &Tensor) -> Result<()> {
    let (device, stream, place) = (a.device(), a.device().stream(), step(out, t));
    if place.elements() == 0 {
        return Ok(());
    }
    let (rows, columns) = (b.layout().strides()[0], b.layout().strides()[1]);
    let matrix = Layout::new(&[1, b.dims()[0], b.dims()[1]], &[0, rows, columns], b.layout().offset());
    let (a_token, b_token) = (a.storage().read(&stream)?, b.storage().read(&stream)?);
    let mut token = out.storage().write(&stream, NAME)?;
    let kernel = MatMul {
        a: Arg::new(&a_token, a.dtype(), a.layout()),
        b: Arg::new(&b_token, b.dtype(), &matrix),
        out: OutArg::new(&mut token, out.dtype(), &place),
        alpha: 1.0,
        beta: 1.0,
        tf32: kiln_tensor::ops::allow_tf32(),
    };
    device.run(kernel, &stream)
}

/// `out = row(inputs..)`, over all of `out`.
fn map_into(out: &Tensor, name: &str, inputs: &[(&Tensor, Layout)]) -> Result<()> {
    let (device, stream) = (out.device(), out.device().stream());
    let tokens = inputs.iter().map(|(t, _)| t.storage().read(&stream)).collect::<Result<Vec<_>>>()?;
    let args: Vec<Arg<'_>> = tokens.iter().zip(inputs).map(|(token, (t, layout))| Arg::new(token, t.dtype(), layout)).collect();
    let mut token = out.storage().write(&stream, NAME)?;
    let kernel = Map { row: row(name), params: [0.0; 2], inputs: &args, out: OutArg::new(&mut token, out.dtype(), out.layout()) };
    device.run(kernel, &stream)
}

/// `out[t] = x`.
fn copy_into(out: &Tensor, t: usize, x: &Tensor) -> Result<()> {
    let (device, stream, place) = (out.device(), out.device().stream(), step(out, t));
    let read = x.storage().read(&stream)?;
    let mut token = out.storage().write(&stream, NAME)?;
    let x = Arg::new(&read, x.dtype(), x.layout());
    device.run(Copy { x, out: OutArg::new(&mut token, out.dtype(), &place) }, &stream)
}

/// `out[t] += x`.
fn add_at(out: &Tensor, t: usize, x: &Tensor) -> Result<()> {
    let (device, stream, place) = (out.device(), out.device().stream(), step(out, t));
    let read = x.storage().read(&stream)?;
    let mut token = out.storage().write(&stream, NAME)?;
    let others = [Arg::new(&read, x.dtype(), x.layout())];
    let kernel =
        MapInPlace { row: row("add"), params: [0.0; 2], x: OutArg::new(&mut token, out.dtype(), &place), others: &others };
    device.run(kernel, &stream)
}
