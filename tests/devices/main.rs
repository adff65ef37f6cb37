//! One suite over every device present: what a program sees through `kiln` is the same on the CPU and on CUDA.
//!
//! A case is a function of a device. Each is run on the CPU and on `cuda:0`; where there is no CUDA device, that copy is reported as ignored with the
//! reason, never as passed. Cases run one at a time, since many count bytes exactly, and after each nothing of it may be alive.

mod autograd;
mod bad_input;
mod categories;
mod chains;
mod checkpoint;
mod creation;
mod dry_run;
mod elementwise;
mod elementwise_more;
mod files;
mod gathering;
mod gradients;
mod indexing;
mod loading;
mod losses;
mod memory;
mod memory_control;
mod memory_lines;
mod modes;
mod norms;
mod npy;
mod optimizers;
mod products;
mod random;
mod reductions;
mod reductions_more;
mod reductions_order;
mod scaler;
mod shapes;
mod streams;
mod support;
mod threads;
mod training;
mod views;

use kiln::Device;
use kiln::alloc::driver;
use kiln::tensor::tape::Node;
use libtest_mimic::{Arguments, Failed, Trial};
use support::{Case, Where};

fn cases() -> Vec<Case> {
    [
        creation::cases(),
        elementwise::cases(),
        elementwise_more::cases(),
        views::cases(),
        shapes::cases(),
        products::cases(),
        reductions::cases(),
        reductions_more::cases(),
        reductions_order::cases(),
        norms::cases(),
        losses::cases(),
        indexing::cases(),
        gathering::cases(),
        random::cases(),
        gradients::cases(),
        autograd::cases(),
        chains::cases(),
        modes::cases(),
        checkpoint::cases(),
        memory::cases(),
        memory_control::cases(),
        memory_lines::cases(),
        categories::cases(),
        dry_run::cases(),
        optimizers::cases(),
        scaler::cases(),
        training::cases(),
        loading::cases(),
        files::cases(),
        npy::cases(),
        bad_input::cases(),
        streams::cases(),
        threads::cases(),
    ]
    .concat()
}

/// Runs a case; then every byte and every node that it made must be gone, on its device and on the host.
fn check(case: &Case, device: &Device) -> Result<(), Failed> {
    let devices = [device.clone(), Device::cpu()];
    let live = || (devices.each_ref().map(|d| d.memory_stats().allocated_outside_workspace()), Node::live_count());
    device.manual_seed(0);
    let before = live();
    (case.run)(device)?;
    device.synchronize()?;
    assert_eq!(live(), before, "live bytes and nodes after the case");
    for d in &devices {
        let stats = d.memory_stats();
        assert_eq!(
            stats.categories.iter().map(|c| c.current).sum::<usize>(),
            stats.allocated.current,
            "categories add up on {d}"
        );
    }
    Ok(())
}

/// Why a case cannot run on `cuda:0`: the first clause of what the driver says, or the device is too small.
fn hindrance(case: &Case) -> Option<String> {
    if let Err(why) = driver::probe() {
        return why.to_string().split([':', ';', '\n']).next().map(String::from);
    }
    match case.place {
        Where::Everywhere => None,
        Where::Cuda { bytes } => match driver::device_info(0) {
            Ok(info) if info.total_memory >= bytes => None,
            _ => Some(format!("less than {} GiB", bytes >> 30)),
        },
    }
}

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let mut trials = Vec::new();
    for case in cases() {
        if case.place == Where::Everywhere {
            trials.push(Trial::test(case.name, move || check(&case, &Device::cpu())).with_kind("cpu"));
        }
        let on_cuda = Trial::test(case.name, move || check(&case, &Device::cuda(0)?));
        trials.push(match hindrance(&case) {
            None => on_cuda.with_kind("cuda:0"),
            Some(why) => on_cuda.with_kind(format!("cuda:0: {why}")).with_ignored_flag(true),
        });
    }
    libtest_mimic::run(&arguments, trials).exit();
}
