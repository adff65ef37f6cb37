//! Gradients against central differences in f64: `(f(x + h) - f(x - h)) / 2h` for every element of every input.
//!
//! A function is checked with its inputs contiguous, transposed in memory, at an offset in a larger storage and broadcast (stride 0), with upstream
//! gradients that are not 1 (one of them with stride 0), and with each input alone wanting a gradient. It must get everything else it uses from the
//! device of its inputs, since the check runs on the CPU and on a CUDA device where there is one.

#![allow(dead_code)]

use kiln_autograd::{Backward, no_grad};
use kiln_tensor::{DType, Device, Result, Tensor};

const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 1e-6;

/// The CPU, and the first CUDA device where there is one.
pub fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    devices.extend(Device::cuda(0).ok());
    devices
}

/// Checks `f` at inputs of these shapes (sizes of 0 too) with values spread over (-2, 2), all different and none at 0.
#[track_caller]
pub fn check(shapes: &[&[usize]], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    check_in(-2.0, 2.0, shapes, f);
}

/// [`check`] with values spread over (lo, hi).
#[track_caller]
pub fn check_in(lo: f64, hi: f64, shapes: &[&[usize]], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let inputs = draw(lo, hi, shapes);
    let inputs: Vec<(&[f64], &[usize])> = inputs.iter().zip(shapes).map(|(values, dims)| (values.as_slice(), *dims)).collect();
    check_values(&inputs, f);
}

/// [`check`] at given inputs.
#[track_caller]
pub fn check_values(inputs: &[(&[f64], &[usize])], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    check_forms(&Form::ALL, inputs, f);
}

/// [`check`] with contiguous inputs alone, for checks over many shapes.
#[track_caller]
pub fn check_contiguous(shapes: &[&[usize]], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let inputs = draw(-2.0, 2.0, shapes);
    let inputs: Vec<(&[f64], &[usize])> = inputs.iter().zip(shapes).map(|(values, dims)| (values.as_slice(), *dims)).collect();
    check_forms(&[Form::Contiguous], &inputs, f);
}

#[track_caller]
fn check_forms(forms: &[Form], inputs: &[(&[f64], &[usize])], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    for device in devices() {
        for &form in forms {
            let leaves: Result<Vec<Input>> =
                inputs.iter().map(|(values, dims)| Input::new(form, values, dims, &device)).collect();
            if let Err(e) = leaves.and_then(|leaves| check_form(form, &leaves, &f)) {
                panic!("{form:?} inputs on {device}: {e}");
            }
        }
    }
}

/// Values for inputs of these shapes, no two equal.
fn draw(lo: f64, hi: f64, shapes: &[&[usize]]) -> Vec<Vec<f64>> {
    let mut k = 0;
    shapes.iter().map(|dims| (0..dims.iter().product()).map(|_| spread(&mut k, lo, hi)).collect()).collect()
}

/// Number `k` of a sequence without repetition (multiples of the golden ratio) in (lo, hi).
fn spread(k: &mut u32, lo: f64, hi: f64) -> f64 {
    *k += 1;
    lo + (hi - lo) * (0.5 + f64::from(*k) * 0.618_033_988_749_895).fract()
}

/// How an input lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Contiguous,
    Transposed,
    Offset,
    BroadcastFirst,
    BroadcastLast,
}

impl Form {
    const ALL: [Form; 5] = [Form::Contiguous, Form::Transposed, Form::Offset, Form::BroadcastFirst, Form::BroadcastLast];
}

/// Values of a leaf, and how the input of the function is a view of it.
struct Input {
    form: Form,
    values: Vec<f64>,
    leaf_dims: Vec<usize>,
    dims: Vec<usize>,
    device: Device,
}

impl Input {
    fn new(form: Form, values: &[f64], dims: &[usize], device: &Device) -> Result<Input> {
        let x = Tensor::from_slice(values, dims, device)?;
        let reversed: Vec<usize> = (0..dims.len()).rev().collect();
        let dim = if form == Form::BroadcastFirst { 0 } else { dims.len().saturating_sub(1) };
        let leaf = match form {
            Form::Transposed if dims.len() > 1 => x.permute(&reversed)?,
            Form::Offset if dims.first().is_some_and(|&n| n > 0) => Tensor::cat(&[&x.narrow(0, 0, 1)?, &x], 0)?,
            Form::BroadcastFirst | Form::BroadcastLast if dims.get(dim).is_some_and(|&n| n > 0) => x.narrow(dim, 0, 1)?,
            _ => x,
        };
        Ok(Input { form, values: leaf.to_vec()?, leaf_dims: leaf.dims().into(), dims: dims.into(), device: device.clone() })
    }
    fn leaf(&self) -> Result<Tensor> {
        Tensor::from_slice(&self.values, &self.leaf_dims, &self.device)
    }
    /// The input as the function sees it.
    fn view(&self, leaf: &Tensor) -> Result<Tensor> {
        let reversed: Vec<usize> = (0..self.dims.len()).rev().collect();
        match self.form {
            Form::Transposed if self.dims.len() > 1 => leaf.permute(&reversed),
            Form::Offset if self.leaf_dims != self.dims => leaf.narrow(0, 1, self.dims[0]),
            _ if self.leaf_dims != self.dims => leaf.expand(&self.dims),
            _ => Ok(leaf.clone()),
        }
    }
}

fn check_form(form: Form, inputs: &[Input], f: &impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    let plain = inputs.iter().map(Input::leaf).collect::<Result<Vec<_>>>()?;
    let at = |leaves: &[Tensor]| -> Result<Tensor> {
        let views = inputs.iter().zip(leaves).map(|(input, leaf)| input.view(leaf)).collect::<Result<Vec<_>>>()?;
        f(&views)
    };
    let y = at(&plain)?;
    let mut k = 1000;
    let weights: Vec<f64> = (0..y.elem_count()).map(|_| spread(&mut k, 0.5, 1.5)).collect();
    let upstream = Tensor::from_slice(&weights, y.shape(), y.device())?;
    let constant = Tensor::full(0.75, (), DType::F64, y.device())?.expand(y.shape())?;

    for (upstream, weights) in [(&upstream, weights.clone()), (&constant, vec![0.75; weights.len()])] {
        let found = gradients(&at, &plain, upstream, |_| true)?;
        for (i, input) in inputs.iter().enumerate() {
            let found = found[i].as_ref().unwrap_or_else(|| panic!("input {i} got no gradient"));
            assert_eq!(found.dims(), input.leaf_dims, "dims of the gradient of input {i}, {form:?}");
            let values = found.to_vec::<f64>()?;
            let alone = gradients(&at, &plain, upstream, |j| j == i)?;
            let alone = alone[i].as_ref().unwrap_or_else(|| panic!("input {i} got no gradient alone")).to_vec::<f64>()?;
            assert_eq!(values, alone, "gradient of input {i}, with others and alone, {form:?}");
            for (e, &found) in values.iter().enumerate() {
                let expected = no_grad(|| difference(&at, &plain, (i, e), input, &weights))?;
                let close = (found - expected).abs() <= TOLERANCE * expected.abs().max(1.0);
                assert!(
                    close,
                    "input {i}, element {e} of {:?}, {form:?}: gradient {found}, difference {expected}",
                    input.leaf_dims
                );
            }
        }
    }
    Ok(())
}

/// Gradients of leaves over `plain`, of those that `wanted` names.
fn gradients(
    at: &impl Fn(&[Tensor]) -> Result<Tensor>,
    plain: &[Tensor],
    upstream: &Tensor,
    wanted: impl Fn(usize) -> bool,
) -> Result<Vec<Option<Tensor>>> {
    let leaf = |(i, x): (usize, &Tensor)| if wanted(i) { x.requires_grad() } else { Ok(x.clone()) };
    let leaves = plain.iter().enumerate().map(leaf).collect::<Result<Vec<_>>>()?;
    at(&leaves)?.backward_with(upstream)?;
    leaves.iter().map(Tensor::grad).collect()
}

/// `d(sum of weights * f) / d(element e of leaf i)` by central differences.
fn difference(
    at: &impl Fn(&[Tensor]) -> Result<Tensor>,
    plain: &[Tensor],
    (i, e): (usize, usize),
    input: &Input,
    weights: &[f64],
) -> Result<f64> {
    let loss = |step: f64| -> Result<f64> {
        let mut values = input.values.clone();
        values[e] += step;
        let mut leaves = plain.to_vec();
        leaves[i] = Tensor::from_slice(&values, &input.leaf_dims, &input.device)?;
        Ok(at(&leaves)?.to_vec::<f64>()?.iter().zip(weights).map(|(y, w)| y * w).sum())
    };
    Ok((loss(STEP)? - loss(-STEP)?) / (2.0 * STEP))
}
