//! Whole loops learn, and give on every device what they give on the host.

use crate::support::{cases, close, numbers, read, tensor};
use kiln::nn::{
    AdamW, AdamWConfig, DataLoader, GradScaler, Linear, Module, Optimizer, Params, Relu, Rnn, Sequential, Sgd, SgdConfig,
    TensorDataset,
};
use kiln::nn::{checkpoint, clip_grad_norm, cross_entropy, mse_loss};
use kiln::{Backward, DType, Device, Result, Tensor, autocast, no_grad};

cases![a_network_learns_in_mixed_precision, losses_are_those_of_the_host, a_recurrent_network_learns];

/// Points in four quadrants, labelled by whether both signs agree.
fn quadrants() -> Result<TensorDataset<f32, i64>> {
    let points: Vec<[f32; 2]> = (0..256).map(|i| [(i % 16) as f32 / 7.5 - 1.0, (i / 16) as f32 / 7.5 - 1.0]).collect();
    let labels = points.iter().map(|[a, b]| i64::from((*a > 0.0) == (*b > 0.0))).collect();
    TensorDataset::new(points.concat(), (256, 2), labels, 256)
}

fn a_network_learns_in_mixed_precision(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let trunk = Sequential::new()
        .then(Linear::new(2, 32, &params.at("a"))?)
        .then(Relu)
        .then(Linear::new(32, 32, &params.at("b"))?)
        .then(Relu);
    let head = Linear::new(32, 2, &params.at("head"))?;
    let mut optimizer = AdamW::new(params.trainable(), AdamWConfig { lr: 1e-2, ..Default::default() })?;
    let mut scaler = GradScaler::default();
    let loader = DataLoader::new(quadrants()?).batch_size(32).shuffle(42).workers(2).pin_memory(d)?;
    for epoch in 0..15 {
        for group in loader.epoch(epoch).accumulate(2) {
            for (weight, batch) in group {
                let (x, y) = batch?;
                let loss = autocast(DType::F16, || cross_entropy(&head.forward(&checkpoint(&trunk, &x)?)?, &y))?;
                scaler.scale(&(loss * weight)?)?.backward()?;
            }
            scaler.unscale(&mut optimizer)?;
            clip_grad_norm(optimizer.parameters(), 5.0)?;
            scaler.step(&mut optimizer)?;
            scaler.update()?;
            optimizer.zero_grad();
        }
    }
    let (x, y) = DataLoader::new(quadrants()?).batch_size(256).pin_memory(d)?.epoch(0).next().expect("a batch")?;
    let right = no_grad(|| head.forward(&trunk.forward(&x)?)?.argmax(1)?.eq(&y)?.to_dtype(DType::F32)?.sum_all())?;
    assert!(right.to_scalar::<f32>()? > 240.0, "{right:?}");
    Ok(())
}

/// Losses of 20 steps in f32.
fn losses(d: &Device) -> Result<Vec<f64>> {
    d.manual_seed(3);
    let params = Params::new(d);
    let model =
        Sequential::new().then(Linear::new(8, 64, &params.at("a"))?).then(Relu).then(Linear::new(64, 4, &params.at("b"))?);
    let x = tensor(&numbers(32 * 8, 1), (32, 8), DType::F32, d)?;
    let y = Tensor::from_vec((0..32i64).map(|i| i % 4).collect(), 32, d)?;
    let mut sgd = Sgd::new(params.trainable(), SgdConfig { lr: 0.05, momentum: 0.9, ..Default::default() })?;
    let mut losses = Vec::new();
    for _ in 0..20 {
        let loss = model.forward(&x)?.dropout(0.1)?.cross_entropy(&y)?;
        loss.backward()?;
        sgd.step()?;
        sgd.zero_grad();
        losses.push(read(&loss)?[0]);
    }
    Ok(losses)
}

fn losses_are_those_of_the_host(d: &Device) -> Result<()> {
    let (here, host) = (losses(d)?, losses(&Device::cpu())?);
    assert!(host[19] < host[0]);
    close(&here, &host, 1e-4, "losses");
    Ok(())
}

fn a_recurrent_network_learns(d: &Device) -> Result<()> {
    let x = Tensor::randn((8, 32, 1), DType::F32, d)?;
    let target = x.narrow(0, 0, 1)?.squeeze(0)?.sign()?;
    let params = Params::new(d);
    let (rnn, head) = (Rnn::new(1, 16, &params.at("rnn"))?.checkpoint_every(4), Linear::new(16, 1, &params.at("head"))?);
    let mut optimizer = AdamW::new(params.trainable(), AdamWConfig { lr: 2e-2, ..Default::default() })?;
    let mut last = f32::NAN;
    for _ in 0..80 {
        let loss = mse_loss(&head.forward(&rnn.last(&x, None)?)?, &target)?;
        loss.backward()?;
        clip_grad_norm(optimizer.parameters(), 1.0)?;
        optimizer.step()?;
        optimizer.zero_grad();
        last = loss.to_scalar()?;
    }
    assert!(last < 0.5, "{last}");
    Ok(())
}
