//! A dry run takes the memory of the real run, event by event.

use crate::support::cases;
use kiln::alloc::LogEvent;
use kiln::nn::{
    Adam, AdamConfig, Dropout, Embedding, GradScaler, LayerNorm, Linear, Lstm, Module, Optimizer, Params, Relu, Sequential,
    checkpoint,
};
use kiln::nn::{clip_grad_norm_unchecked, cross_entropy};
use kiln::{Backward, Category, DType, Device, Error, Result, Tensor, autocast};
use std::collections::HashMap;

cases![
    a_training_program_takes_the_same_memory_dry,
    a_recurrent_program_takes_the_same_memory_dry,
    values_of_a_dry_device_cannot_be_read
];

/// Mixed precision, checkpoints, dropout, norms, clipping and Adam, for three steps.
fn train(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let block = |name: &str| -> Result<Sequential> {
        let at = params.at(name);
        let up = Linear::new(64, 256, &at.at("up"))?;
        let down = Linear::new(256, 64, &at.at("down"))?;
        Ok(Sequential::new().then(LayerNorm::new(64, &at.at("norm"))?).then(up).then(Relu).then(Dropout::new(0.1)?).then(down))
    };
    let blocks = [block("a")?, block("b")?, block("c")?];
    let head = Linear::new(64, 10, &params.at("head"))?;
    let mut adam = Adam::new(params.trainable(), AdamConfig { weight_decay: 0.01, ..Default::default() })?;
    let mut scaler = GradScaler::default();
    let y = Tensor::zeros(128, DType::I64, d)?;
    for _ in 0..3 {
        let x = Tensor::randn((128, 64), DType::F32, d)?;
        let loss = autocast(DType::F16, || {
            let h = blocks.iter().try_fold(x, |x, block| &x + &checkpoint(block, &x)?)?;
            cross_entropy(&head.forward(&h)?, &y)
        })?;
        scaler.scale(&loss)?.backward()?;
        scaler.unscale(&mut adam)?;
        clip_grad_norm_unchecked(adam.parameters(), 1.0)?;
        scaler.step(&mut adam)?;
        scaler.update()?;
        adam.zero_grad();
    }
    Ok(())
}

/// An embedding, an LSTM with checkpoints, and softmax.
fn remember(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let (table, lstm) =
        (Embedding::new(50, 16, &params.at("table"))?, Lstm::new(16, 32, &params.at("lstm"))?.checkpoint_every(4));
    let head = Linear::new(32, 50, &params.at("head"))?;
    let mut adam = Adam::new(params.trainable(), Default::default())?;
    let ids = Tensor::zeros((10, 8), DType::I64, d)?;
    for _ in 0..2 {
        let (h, _) = lstm.run(&table.forward(&ids)?, None)?;
        let scores = head.forward(&h)?;
        let loss = (scores.softmax(-1)?.amax([2])?.mean_all()? + scores.reshape((80, 50))?.cross_entropy(&ids.reshape(80)?)?)?;
        loss.backward()?;
        adam.step()?;
        adam.zero_grad();
    }
    Ok(())
}

/// The event log of a program that starts on an idle device.
struct Run {
    events: Vec<LogEvent>,
    /// The peak that the device's statistics saw, above what was live at the start.
    peak: usize,
}

impl Run {
    fn new(d: &Device, program: fn(&Device) -> Result<()>) -> Result<Run> {
        // Workspaces that earlier work left on its streams go.
        d.empty_cache()?;
        d.reset_peak_memory_stats();
        let before = d.memory_stats().allocated.current;
        d.start_event_log();
        let done = program(d);
        let events = d.take_event_log();
        done?;
        Ok(Run { events, peak: d.memory_stats().allocated.peak - before })
    }

    /// The events outside of workspaces, with the blocks numbered anew.
    fn without_workspaces(&self) -> Vec<LogEvent> {
        let (mut numbers, mut events) = (HashMap::new(), Vec::new());
        for &event in &self.events {
            match event {
                LogEvent::Alloc { category: Category::Workspace, .. } => {}
                LogEvent::Alloc { id, bytes, stream, category } => {
                    let number = numbers.len() as u64;
                    numbers.insert(id, number);
                    events.push(LogEvent::Alloc { id: number, bytes, stream, category });
                }
                LogEvent::Free { id } => events.extend(numbers.get(&id).map(|&id| LogEvent::Free { id })),
            }
        }
        events
    }
}

/// The most bytes alive at once in a log.
fn peak(events: &[LogEvent]) -> usize {
    let (mut sizes, mut now, mut peak) = (HashMap::new(), 0, 0);
    for event in events {
        match event {
            LogEvent::Alloc { id, bytes, .. } => {
                let bytes = bytes.next_multiple_of(512);
                sizes.insert(*id, bytes);
                now += bytes;
                peak = peak.max(now);
            }
            LogEvent::Free { id } => now -= sizes.remove(id).unwrap_or(0),
        }
    }
    peak
}

/// The first place where two logs differ, with what led there.
#[track_caller]
fn assert_equal(dry: &[LogEvent], real: &[LogEvent]) {
    if let Some(at) = (0..dry.len().max(real.len())).find(|&i| dry.get(i) != real.get(i)) {
        let around = |events: &[LogEvent]| events[at.saturating_sub(4).min(events.len())..(at + 4).min(events.len())].to_vec();
        panic!("logs differ at event {at} of {} and {}:\ndry  {:?}\nreal {:?}", dry.len(), real.len(), around(dry), around(real));
    }
}

fn compare(d: &Device, program: fn(&Device) -> Result<()>) -> Result<()> {
    let (dry, real) = (Run::new(&Device::dry_run("8GiB")?, program)?, Run::new(d, program)?);
    for run in [&dry, &real] {
        assert_eq!(peak(&run.events), run.peak, "a log tells the peak");
    }
    assert_equal(&dry.without_workspaces(), &real.without_workspaces());
    assert_eq!(peak(&dry.without_workspaces()), peak(&real.without_workspaces()));
    if d.is_cuda() {
        assert_equal(&dry.events, &real.events);
        assert_eq!(dry.peak, real.peak);
    }
    Ok(())
}

fn a_training_program_takes_the_same_memory_dry(d: &Device) -> Result<()> {
    compare(d, train)
}

fn a_recurrent_program_takes_the_same_memory_dry(d: &Device) -> Result<()> {
    compare(d, remember)
}

fn values_of_a_dry_device_cannot_be_read(d: &Device) -> Result<()> {
    let dry = Device::dry_run("64MiB")?;
    let x = Tensor::ones((2, 2), DType::F32, d)?.to_device(&dry)?;
    let y = x.matmul(&x)?.sum_all()?;
    assert!(matches!(y.to_scalar::<f32>(), Err(Error::DryRun { .. })));
    assert!(matches!(y.to_vec::<f32>(), Err(Error::DryRun { .. })));
    assert!(matches!(y.to_device(d), Err(Error::DryRun { .. })));
    assert!(Tensor::zeros(65 << 20, DType::U8, &dry).unwrap_err().is_out_of_memory());
    assert_ne!(dry, Device::dry_run("64MiB")?);
    assert!(["", "12 parsecs", "-1GiB", "0"].iter().all(|size| Device::dry_run(size).is_err()));
    Ok(())
}
