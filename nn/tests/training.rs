//! Whole loops.

use kiln_autograd::{Backward, autocast, no_grad};
use kiln_nn::{
    AdamW, AdamWConfig, DataLoader, GradScaler, Linear, Lstm, Module, Optimizer, Params, Relu, Rnn, Sequential, Sgd, SgdConfig,
    TensorDataset, checkpoint, clip_grad_norm, cross_entropy, mse_loss,
};
use kiln_tensor::{DType, Device, Result, Tensor};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The device, seeded, and for this test alone: its generator is shared, so weights would depend on the order of threads.
fn seeded() -> (Device, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::cpu();
    device.manual_seed(1);
    (device, alone)
}

/// Points in four quadrants, labelled by whether both signs agree.
fn quadrants() -> Result<TensorDataset<f32, i64>> {
    let points: Vec<[f32; 2]> = (0..256).map(|i| [(i % 16) as f32 / 7.5 - 1.0, (i / 16) as f32 / 7.5 - 1.0]).collect();
    let labels = points.iter().map(|[a, b]| i64::from((*a > 0.0) == (*b > 0.0))).collect();
    TensorDataset::new(points.concat(), (256, 2), labels, 256)
}

#[test]
fn a_network_learns_in_mixed_precision_with_checkpoints_and_micro_batches() -> Result<()> {
    let (device, _alone) = seeded();
    let params = Params::new(&device);
    let trunk = Sequential::new()
        .then(Linear::new(2, 32, &params.at("a"))?)
        .then(Relu)
        .then(Linear::new(32, 32, &params.at("b"))?)
        .then(Relu);
    let head = Linear::new(32, 2, &params.at("head"))?;
    let mut optimizer = AdamW::new(params.trainable(), AdamWConfig { lr: 1e-2, ..Default::default() })?;
    let mut scaler = GradScaler::default();
    let loader = DataLoader::new(quadrants()?).batch_size(32).shuffle(42).workers(2).pin_memory(&device)?;
    for epoch in 0..15 {
        for group in loader.epoch(epoch).accumulate(2) {
            for (weight, batch) in group {
                let (x, y) = batch?;
                let loss = autocast(DType::F16, || cross_entropy(&head.forward(&checkpoint(&trunk, &x)?)?, &y))?;
                scaler.scale(&loss.affine(weight, 0.0)?)?.backward()?;
            }
            scaler.unscale(&mut optimizer)?;
            clip_grad_norm(optimizer.parameters(), 5.0)?;
            scaler.step(&mut optimizer)?;
            scaler.update()?;
            optimizer.zero_grad();
        }
    }
    let (x, y) = DataLoader::new(quadrants()?).batch_size(256).epoch(0).next().unwrap()?;
    let logits = no_grad(|| head.forward(&trunk.forward(&x)?))?.to_vec2::<f32>()?;
    let right = logits.iter().zip(y.to_vec::<i64>()?).filter(|(l, y)| i64::from(l[1] > l[0]) == *y).count();
    assert!(right > 240, "{right}");
    Ok(())
}

#[test]
fn micro_batches_give_the_gradient_of_the_whole_batch() -> Result<()> {
    let (device, _alone) = seeded();
    let params = Params::new(&device);
    let layer = Linear::new(2, 2, &params)?;
    let gradient = |size: usize, parts: usize| -> Result<Vec<f32>> {
        params.trainable().iter().for_each(|p| p.zero_grad());
        let group = DataLoader::new(quadrants()?).batch_size(size).epoch(0).accumulate(parts).next().unwrap();
        for (weight, batch) in group {
            let (x, y) = batch?;
            layer.forward(&x)?.cross_entropy(&y)?.affine(weight, 0.0)?.backward()?;
        }
        layer.weight().grad()?.unwrap().to_vec()
    };
    for (a, b) in gradient(256, 1)?.into_iter().zip(gradient(100, 3)?) {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
    Ok(())
}

#[test]
fn recurrent_networks_learn_to_remember_the_first_input() -> Result<()> {
    let (device, _alone) = seeded();
    let x = Tensor::randn((12, 32, 1), DType::F32, &device)?;
    let target = x.narrow(0, 0, 1)?.squeeze(0)?.sign()?;
    let learn = |forward: &dyn Fn(&Tensor) -> Result<Tensor>, params: &Params| -> Result<f32> {
        let mut optimizer = AdamW::new(params.trainable(), AdamWConfig { lr: 2e-2, ..Default::default() })?;
        let mut last = f32::NAN;
        for _ in 0..120 {
            let loss = mse_loss(&forward(&x)?, &target)?;
            loss.backward()?;
            clip_grad_norm(optimizer.parameters(), 1.0)?;
            optimizer.step()?;
            optimizer.zero_grad();
            last = loss.to_scalar()?;
        }
        Ok(last)
    };
    let params = Params::new(&device);
    let (rnn, head) = (Rnn::new(1, 16, &params.at("rnn"))?.checkpoint_every(8), Linear::new(16, 1, &params.at("head"))?);
    let loss = learn(&|x| head.forward(&rnn.last(x, None)?), &params)?;
    assert!(loss < 0.3, "rnn {loss}");
    let params = Params::new(&device);
    let (lstm, head) = (Lstm::new(1, 16, &params.at("lstm"))?, Linear::new(16, 1, &params.at("head"))?);
    let loss = learn(&|x| head.forward(&lstm.last(x, None)?.0), &params)?;
    assert!(loss < 0.3, "lstm {loss}");
    Ok(())
}

#[test]
fn a_dry_run_takes_the_memory_of_a_step() -> Result<()> {
    let device = Device::dry_run("8GiB")?;
    let params = Params::new(&device);
    let layer = Linear::new(1024, 1024, &params)?;
    let mut optimizer = Sgd::new(params.trainable(), SgdConfig { momentum: 0.9, ..Default::default() })?;
    let mut scaler = GradScaler::default();
    let x = Tensor::zeros((64, 1024), DType::F32, &device)?;
    scaler.scale(&layer.forward(&x)?.square()?.sum_all()?)?.backward()?;
    assert!(clip_grad_norm(optimizer.parameters(), 1.0)?.is_nan());
    scaler.step(&mut optimizer)?;
    scaler.update()?;
    // Weight, gradient and momentum.
    let peak = device.memory_stats().allocated.peak;
    assert!(peak >= 3 * 4 * 1024 * 1024, "{peak}");
    Ok(())
}
