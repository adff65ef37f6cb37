//! Recurrent cells and sequences.

use kiln_alloc::Category;
use kiln_autograd::{Backward, autocast, no_grad};
use kiln_nn::{Cell, Gru, GruCell, Lstm, LstmCell, Module, Params, Recurrent, Rnn, RnnCell};
use kiln_tensor::{DType, Device, Result, Tensor};

fn close(a: &[f32], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).for_each(|(&a, &b)| assert!((a as f64 - b).abs() < 1e-6, "{a} {b}"));
}

/// `W_ih x + b_ih` and `W_hh h + b_hh` in f64, from the parameters of a cell in the order of creation.
fn halves(params: &Params, x: &[f64], h: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
    let p: Vec<Vec<f32>> = params.trainable().iter().map(|p| p.to_vec::<f32>()).collect::<Result<_>>()?;
    let affine = |w: &[f32], b: &[f32], x: &[f64]| -> Vec<f64> {
        w.chunks(x.len()).zip(b).map(|(row, &b)| b as f64 + row.iter().zip(x).map(|(&w, x)| w as f64 * x).sum::<f64>()).collect()
    };
    Ok((affine(&p[0], &p[2], x), affine(&p[1], &p[3], h)))
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

const X: [f64; 3] = [0.5, -1.0, 2.0];
const H: [f64; 2] = [0.25, -0.75];
const C: [f64; 2] = [1.5, -0.5];

fn row(values: &[f64]) -> Result<Tensor> {
    Tensor::from_vec(values.to_vec(), (1, values.len()), &Device::cpu())?.to_dtype(DType::F32)
}

#[test]
fn the_tanh_cell_follows_its_formula() -> Result<()> {
    let params = Params::new(&Device::cpu());
    let cell = RnnCell::new(3, 2, &params)?;
    let (a, b) = halves(&params, &X, &H)?;
    let expected: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (a + b).tanh()).collect();
    close(&cell.forward(&row(&X)?, &row(&H)?)?.to_vec::<f32>()?, &expected);
    Ok(())
}

#[test]
fn the_gru_cell_follows_its_formula() -> Result<()> {
    let params = Params::new(&Device::cpu());
    let cell = GruCell::new(3, 2, &params)?;
    let (a, b) = halves(&params, &X, &H)?;
    let gate = |i: usize| {
        let (r, z) = (sigmoid(a[i] + b[i]), sigmoid(a[2 + i] + b[2 + i]));
        (1.0 - z) * (a[4 + i] + r * b[4 + i]).tanh() + z * H[i]
    };
    close(&cell.forward(&row(&X)?, &row(&H)?)?.to_vec::<f32>()?, &[gate(0), gate(1)]);
    Ok(())
}

#[test]
fn the_lstm_cell_follows_its_formula() -> Result<()> {
    let params = Params::new(&Device::cpu());
    let cell = LstmCell::new(3, 2, &params)?;
    let (a, b) = halves(&params, &X, &H)?;
    let g = |i: usize| a[i] + b[i];
    let c: Vec<f64> = (0..2).map(|i| sigmoid(g(2 + i)) * C[i] + sigmoid(g(i)) * g(4 + i).tanh()).collect();
    let h: Vec<f64> = (0..2).map(|i| sigmoid(g(6 + i)) * c[i].tanh()).collect();
    let (new_h, new_c) = cell.forward(&row(&X)?, &(row(&H)?, row(&C)?))?;
    close(&new_h.to_vec::<f32>()?, &h);
    close(&new_c.to_vec::<f32>()?, &c);
    Ok(())
}

/// A sequence equals its cell step by step, in values and gradients.
fn equals_its_cell<C: Cell>(steps: usize) -> Result<()> {
    let device = Device::cpu();
    let params = Params::new(&device).with_dtype(DType::F64);
    let layer = Recurrent::<C>::new(3, 4, &params)?;
    let x = Tensor::randn((steps, 2, 3), DType::F64, &device)?.requires_grad()?;
    let weights = Tensor::randn((steps, 2, 4), DType::F64, &device)?;
    let run = |by_cell: bool| -> Result<Vec<Vec<f64>>> {
        params.trainable().iter().for_each(|p| p.zero_grad());
        let x = x.detach().requires_grad()?;
        let (y, last) = if by_cell {
            let (cell, mut state, mut outputs) = (layer.cell(), layer.cell().zero_state(&[2], DType::F64, &device)?, Vec::new());
            for t in 0..steps {
                state = cell.step(&cell.project(&x.narrow(0, t, 1)?.squeeze(0)?)?, &state)?;
                outputs.push(C::output(&state).clone());
            }
            (Tensor::stack(&outputs, 0)?, state)
        } else {
            layer.run(&x, None)?
        };
        let last = C::tensors(&last)
            .iter()
            .try_fold(Tensor::zeros((), DType::F64, &device)?, |sum, t| sum.add(&t.square()?.sum_all()?))?;
        y.mul(&weights)?.sum_all()?.add(&last)?.backward()?;
        let grads = params.trainable().into_iter().map(|p| p.grad()).chain([x.grad()]);
        let mut all: Vec<Vec<f64>> = grads.map(|g| g?.unwrap().to_vec::<f64>()).collect::<Result<_>>()?;
        all.push(y.to_vec()?);
        Ok(all)
    };
    for (a, b) in run(true)?.iter().flatten().zip(run(false)?.iter().flatten()) {
        assert!((a - b).abs() < 1e-12, "{a} {b}");
    }
    Ok(())
}

#[test]
fn sequences_equal_their_cells_step_by_step() -> Result<()> {
    for steps in [1, 7, 8, 19] {
        equals_its_cell::<RnnCell>(steps)?;
        equals_its_cell::<GruCell>(steps)?;
        equals_its_cell::<LstmCell>(steps)?;
    }
    Ok(())
}

/// All gradients and outputs of a sequence, by `layer`.
fn everything<C: Cell>(layer: &Recurrent<C>, params: &Params, x: &Tensor, low: DType) -> Result<Vec<Vec<f32>>> {
    params.trainable().iter().for_each(|p| p.zero_grad());
    let x = x.detach().requires_grad()?;
    let (y, last) = autocast(low, || layer.run(&x, None))?;
    let last = C::output(&last).to_dtype(DType::F32)?.sum_all()?;
    y.to_dtype(DType::F32)?.square()?.sum_all()?.add(&last)?.backward()?;
    let grads = params.trainable().into_iter().map(|p| p.grad()).chain([x.grad()]);
    grads.map(|g| g?.unwrap().to_vec::<f32>()).chain([y.to_dtype(DType::F32)?.to_vec::<f32>()]).collect()
}

fn checkpoints_change_nothing<C: Cell>() -> Result<()> {
    let device = Device::cpu();
    let params = Params::new(&device);
    let layer = Recurrent::<C>::new(5, 7, &params)?;
    let x = Tensor::randn((37, 3, 5), DType::F32, &device)?;
    for low in [DType::F32, DType::BF16] {
        let plain = everything(&layer, &params, &x, low)?;
        for every in [1, 8, 10, 16, 100] {
            assert_eq!(everything(&layer.clone().checkpoint_every(every), &params, &x, low)?, plain, "{every} {low}");
        }
    }
    Ok(())
}

#[test]
fn checkpoints_change_no_bit() -> Result<()> {
    checkpoints_change_nothing::<RnnCell>()?;
    checkpoints_change_nothing::<GruCell>()?;
    checkpoints_change_nothing::<LstmCell>()
}

#[test]
fn checkpoints_save_memory() -> Result<()> {
    let peak = |every: Option<usize>| -> Result<usize> {
        let device = Device::dry_run("8GiB")?;
        let layer = Rnn::new(16, 256, &Params::new(&device))?;
        let layer = every.map_or(layer.clone(), |k| layer.checkpoint_every(k));
        let x = Tensor::zeros((512, 64, 16), DType::F32, &device)?;
        layer.last(&x, None)?.sum_all()?.backward()?;
        // The workspace of matrix products is of one size, whatever the program.
        let stats = device.memory_stats();
        Ok(stats.allocated.peak - stats.category(Category::Workspace).peak)
    };
    let (plain, checkpointed) = (peak(None)?, peak(Some(32))?);
    assert!(checkpointed * 5 < plain, "{checkpointed} {plain}");
    Ok(())
}

#[test]
fn a_step_keeps_little_more_than_its_output() -> Result<()> {
    let device = Device::dry_run("8GiB")?;
    let layer = Rnn::new(16, 256, &Params::new(&device))?;
    let x = Tensor::zeros((512, 64, 16), DType::F32, &device)?;
    let before = device.memory_stats().allocated_outside_workspace();
    let last = layer.last(&x, None)?;
    let kept = device.memory_stats().allocated_outside_workspace() - before;
    let outputs = 512 * 64 * 256 * 4;
    assert!(last.tracked() && kept <= outputs + outputs / 16, "{kept} {outputs}");
    Ok(())
}

#[test]
fn states_carry_over() -> Result<()> {
    let device = Device::cpu();
    let layer = Lstm::new(3, 4, &Params::new(&device))?;
    let x = Tensor::randn((16, 2, 3), DType::F32, &device)?;
    no_grad(|| {
        let (whole, _) = layer.run(&x, None)?;
        let state = layer.last(&x.narrow(0, 0, 8)?, None)?;
        let (second, _) = layer.run(&x.narrow(0, 8, 8)?, Some(&state))?;
        assert_eq!(whole.narrow(0, 8, 8)?.to_vec::<f32>()?, second.to_vec::<f32>()?);
        Ok(())
    })
}

#[test]
fn wrong_shapes_are_named() -> Result<()> {
    let device = Device::cpu();
    let layer = Gru::new(3, 4, &Params::new(&device))?;
    let forward = |dims: [usize; 3]| layer.forward(&Tensor::zeros(dims, DType::F32, &device)?);
    assert!(forward([5, 2, 4]).unwrap_err().to_string().contains("[5, 2, 4]"));
    assert!(forward([0, 2, 3]).is_err());
    assert_eq!(forward([9, 0, 3])?.dims(), [9, 0, 4]);
    let state = Tensor::zeros((3, 4), DType::F32, &device)?;
    assert!(
        layer.last(&Tensor::zeros((5, 2, 3), DType::F32, &device)?, Some(&state)).unwrap_err().to_string().contains("[3, 4]")
    );
    Ok(())
}
