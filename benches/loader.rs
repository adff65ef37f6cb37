//! Whether copies to the device hide behind compute: the time of the steps alone, of the loader alone, and of both together, each over the same batches.
//! If nothing overlapped, together would be the sum of the two; if all did, the larger of them.
//!
//! Prints one JSON line: `{"workload": "loader", "device", "pinned_mib", "compute_ms", "load_ms", "together_ms", "hidden"}`; times are of a step, and `hidden` is
//! the part of the loader's time that vanished behind compute.

use kiln::nn::TensorDataset;
use kiln::prelude::*;
use std::time::Instant;

const STEPS: usize = 40;
const FEATURES: usize = 4096;
const LAYERS: usize = 4;

fn main() -> Result<()> {
    // `cargo bench` adds flags of its own; the device is the word after --device.
    let args: Vec<String> = std::env::args().collect();
    let name = args.iter().position(|a| a == "--device").and_then(|i| args.get(i + 1)).map_or("auto", |s| s.as_str());
    let device = Device::from_name(name)?;
    let batch = if device.is_cuda() { 1024 } else { 32 };

    let samples = batch * STEPS;
    let x: Vec<f32> = (0..samples * FEATURES).map(|i| (i % 251) as f32 / 251.0).collect();
    let dataset = TensorDataset::new(x, (samples, FEATURES), vec![0i64; samples], samples)?;
    let loader = DataLoader::new(dataset).batch_size(batch).shuffle(1).workers(8).pin_memory(&device)?;
    let weight = Tensor::randn((FEATURES, FEATURES), DType::F32, &device)?.affine(1.0 / 64.0, 0.0)?;
    let step = |x: &Tensor| -> Result<()> {
        no_grad(|| {
            let mut h = x.clone();
            for _ in 0..LAYERS {
                h = h.matmul(&weight)?;
            }
            Ok(())
        })
    };
    let mut epochs = 0;
    let mut epoch = |compute: bool| -> Result<f64> {
        epochs += 1;
        let mut batches = loader.epoch(epochs);
        let first = batches.next().ok_or_else(|| kiln::Error::message("no batch"))??;
        step(&first.0)?;
        device.synchronize()?;
        let start = Instant::now();
        for batch in batches {
            let (x, _) = batch?;
            if compute {
                step(&x)?;
            }
        }
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / (STEPS - 1) as f64)
    };
    epoch(true)?;
    let load = median([epoch(false)?, epoch(false)?, epoch(false)?]);
    let together = median([epoch(true)?, epoch(true)?, epoch(true)?]);

    let resident = Tensor::rand((batch, FEATURES), DType::F32, &device)?;
    let alone = || -> Result<f64> {
        let start = Instant::now();
        for _ in 1..STEPS {
            step(&resident)?;
        }
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / (STEPS - 1) as f64)
    };
    let compute = median([alone()?, alone()?, alone()?]);

    let mib = (batch * (FEATURES * 4 + 8)) as f64 / (1 << 20) as f64;
    let hidden = (compute + load - together) / load;
    println!(
        "{}",
        serde_json::json!({"workload": "loader", "device": device.name(), "pinned_mib": mib, "compute_ms": compute, "load_ms": load,
            "together_ms": together, "hidden": hidden})
    );
    Ok(())
}

fn median(mut times: [f64; 3]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[1]
}
