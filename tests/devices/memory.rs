//! Memory at its limits, and what comes back.

use crate::support::{cases, gradient, leaf, live, read};
use kiln::nn::{AdamW, Linear, Module, Optimizer, Params, Relu, Sequential, checkpoint};
use kiln::{Backward, Category, DType, Device, Error, Result, Tensor};

cases![
    more_than_the_limit_is_an_error_with_a_report,
    running_out_in_the_middle_of_a_step_leaves_all_usable,
    an_emptied_cache_gives_memory_back,
    reserved_memory_is_flat_from_the_second_step_on,
    memory_of_a_loop_is_reused,
    checkpoints_lower_the_peak_of_activations,
    tensors_dropped_out_of_order_leave_nothing,
];

const MIB: usize = 1 << 20;

/// A limit on a device, lifted at the end.
pub struct Limit<'a>(&'a Device);

impl<'a> Limit<'a> {
    /// At most `bytes` more than are taken now.
    pub fn above_now(device: &'a Device, bytes: usize) -> Result<Limit<'a>> {
        device.empty_cache()?;
        device.set_memory_limit(Some(device.memory_stats().reserved.current + bytes));
        Ok(Limit(device))
    }
    /// Whatever limit is set.
    pub fn until_dropped(device: &'a Device) -> Limit<'a> {
        Limit(device)
    }
}

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        self.0.set_memory_limit(None);
    }
}

fn more_than_the_limit_is_an_error_with_a_report(d: &Device) -> Result<()> {
    let _limit = Limit::above_now(d, 32 * MIB)?;
    let before = d.memory_stats();
    let e = Tensor::zeros(128 * MIB, DType::U8, d).unwrap_err();
    assert!(e.is_out_of_memory());
    let text = e.to_string();
    let Error::OutOfMemory { op: Some("zeros"), report } = e else { panic!("{text}") };
    assert_eq!((report.requested, report.limit), (128 * MIB, before.limit));
    assert_eq!((report.allocated, &report.device), (before.allocated.current, &d.name().to_owned()));
    assert!(report.reserved <= before.limit.unwrap() && report.driver_total > 0 && !report.steps.is_empty());
    assert!(text.contains("zeros") && text.contains("limit"), "{text}");
    assert_eq!(d.memory_stats().allocated.current, before.allocated.current);
    assert_eq!(d.memory_stats().ooms, before.ooms + 1);
    // What fits still works, and so does the next kernel.
    assert_eq!(read(&(Tensor::ones(3, DType::F32, d)? * 2.0)?)?, [2.0; 3]);
    assert_eq!(Tensor::zeros(16 * MIB, DType::U8, d)?.elem_count(), 16 * MIB);
    Ok(())
}

fn running_out_in_the_middle_of_a_step_leaves_all_usable(d: &Device) -> Result<()> {
    let n = 2 * MIB;
    let run = |x: &Tensor| -> Result<()> {
        let y = (0..4).try_fold(x.clone(), |y, _| y.exp()?.tanh())?;
        y.sum_all()?.backward()
    };
    let x = Tensor::full(0.5, n, DType::F32, d)?.requires_grad()?;
    // 8 activations of 8 MiB, and the gradients.
    let started = live(d);
    for room in [20, 60, 70] {
        let _limit = Limit::above_now(d, room * MIB)?;
        let e = run(&x).unwrap_err();
        assert!(e.is_out_of_memory(), "{e}");
        assert_eq!(live(d), started, "with room for {room} MiB");
    }
    run(&x)?;
    let whole = gradient(&x)?;
    assert!(whole.iter().all(|g| g.to_bits() == whole[0].to_bits()) && whole[0] > 0.0);
    Ok(())
}

fn an_emptied_cache_gives_memory_back(d: &Device) -> Result<()> {
    d.empty_cache()?;
    let before = d.memory_stats().reserved.current;
    let x = Tensor::ones(64 * MIB, DType::U8, d)?;
    assert!(d.memory_stats().reserved.current >= before + 62 * MIB);
    drop(x);
    assert!(d.memory_stats().reserved.current >= before + 62 * MIB, "a free goes to the cache");
    d.empty_cache()?;
    assert_eq!(d.memory_stats().reserved.current, before);
    let summary = d.memory_summary();
    assert!(Category::ALL.iter().all(|c| summary.contains(c.name())), "{summary}");
    Ok(())
}

fn deep(params: &Params) -> Result<Vec<Sequential>> {
    let block = |i: usize| Ok(Sequential::new().then(Linear::new(256, 256, &params.at(i))?).then(Relu));
    (0..8).map(block).collect()
}

fn reserved_memory_is_flat_from_the_second_step_on(d: &Device) -> Result<()> {
    d.empty_cache()?;
    let params = Params::new(d);
    let blocks = deep(&params)?;
    let mut adam = AdamW::new(params.trainable(), Default::default())?;
    let mut flat = None;
    for step in 0..6 {
        let x = Tensor::randn((512, 256), DType::F32, d)?;
        blocks.iter().try_fold(x, |x, block| block.forward(&x))?.square()?.mean_all()?.backward()?;
        adam.step()?;
        adam.zero_grad();
        d.synchronize()?;
        let stats = d.memory_stats();
        let now = (stats.reserved.peak, stats.reserved.current, stats.driver_calls, stats.allocated.current);
        if step > 0 {
            assert_eq!(*flat.get_or_insert(now), now, "step {step}");
        }
    }
    Ok(())
}

fn memory_of_a_loop_is_reused(d: &Device) -> Result<()> {
    d.empty_cache()?;
    d.reset_peak_memory_stats();
    let before = d.memory_stats().reserved.current;
    for i in 0..if d.is_cuda() { 2000 } else { 20 } {
        Tensor::full(i, 16 * MIB, DType::F32, d)?;
    }
    let grown = d.memory_stats().reserved.peak - before;
    assert!(grown <= 3 * 64 * MIB, "{grown}");
    Ok(())
}

fn checkpoints_lower_the_peak_of_activations(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let blocks = deep(&params)?;
    let x = Tensor::ones((64, 256), DType::F32, d)?;
    let peak = |checkpointed: bool| -> Result<usize> {
        let activations = || d.memory_stats().category(Category::Activations);
        d.reset_peak_memory_stats();
        let before = activations().current;
        let apply = |x: Tensor, block| if checkpointed { checkpoint(block, &x) } else { Module::forward(block, &x) };
        blocks.iter().try_fold(x.clone(), apply)?.sum_all()?.backward()?;
        params.trainable().iter().for_each(|p| p.zero_grad());
        Ok(activations().peak - before)
    };
    // A block saves its input (the relu of the block before) and its own relu: 8 of 64 KiB each, against the 7 inputs and one block's own.
    let one = 64 * 256 * 4;
    let (plain, checkpointed) = (peak(false)?, peak(true)?);
    assert!(plain >= 8 * one && checkpointed <= plain, "{plain} {checkpointed}");
    // All blocks behind one checkpoint of two halves: each half is rebuilt alone.
    let halves: Vec<Sequential> =
        blocks.chunks(4).map(|half| Sequential(half.iter().flat_map(|b| b.0.clone()).collect())).collect();
    d.reset_peak_memory_stats();
    let before = d.memory_stats().category(Category::Activations).current;
    halves.iter().try_fold(x.clone(), |x, half| checkpoint(half, &x))?.sum_all()?.backward()?;
    let halved = d.memory_stats().category(Category::Activations).peak - before;
    assert!(halved < plain * 3 / 4, "{halved} of {plain}");
    Ok(())
}

fn tensors_dropped_out_of_order_leave_nothing(d: &Device) -> Result<()> {
    let before = live(d);
    let x = leaf(&[1.; 100], (10, 10), d)?;
    let mut all: Vec<Tensor> = vec![x];
    for i in 0..200 {
        let last = &all[all.len() - 1];
        let y = match i % 4 {
            0 => last.t()?,
            1 => last.tanh()?,
            2 => last.matmul(&all[i / 2])?.tanh()?,
            _ => (last + &all[i / 3])?,
        };
        all.push(y);
    }
    // Every third, then from the middle to both ends.
    let mut kept: Vec<Tensor> = all.into_iter().enumerate().filter(|(i, _)| i % 3 > 0).map(|(_, t)| t).collect();
    while !kept.is_empty() {
        drop(kept.swap_remove(kept.len() / 2));
    }
    assert_eq!(live(d), before);
    Ok(())
}
