//! Random programs over streams, private pools, policies and limits.

use super::world::Faults::{self, Any, None, Taking};
use super::world::{MIB, Setup, World};
use crate::Policy;
use crate::policies::{Bump, Paged, RoundUp, Torch};

/// How many programs there are of each kind, and how many steps each has.
const PROGRAMS: u64 = 24;
const STEPS: usize = 3500;

fn policy(n: u64) -> Box<dyn Policy> {
    match n {
        0 => Box::new(Paged::default()),
        1 => Box::new(Paged { stitch_above: 1.0 }),
        2 => Box::new(Paged { stitch_above: f64::INFINITY }),
        3 => Box::new(RoundUp::new(Paged::default(), 1.2)),
        4 => Box::new(Bump),
        _ => Box::new(Torch),
    }
}

fn run(n: u64, virtual_memory: bool, faults: Faults) {
    let mut refused = 0;
    for program in 0..PROGRAMS {
        let seed = n * 1000 + program;
        let capacity = [24, 48, 64, 160][(program % 4) as usize] * MIB;
        let mut world = World::new(Setup { seed, capacity, virtual_memory, faults, policy: policy(n) });
        for step in 0..STEPS {
            world.step();
            if step % 64 == 0 {
                world.audit();
            }
        }
        refused += world.refused;
        world.end();
    }
    // The programs do come to where it hurts.
    assert!(refused > 100);
}

macro_rules! programs {
    ($($name:ident: $policy:expr, pages $pages:expr, faults $faults:expr;)*) => {
        $(#[test] fn $name() { run($policy, $pages, $faults); })*
    };
}

programs! {
    paged: 0, pages true, faults None;
    paged_and_stitching_before_all: 1, pages true, faults None;
    paged_and_stitching_last: 2, pages true, faults None;
    rounded_up: 3, pages true, faults None;
    bump: 4, pages true, faults None;
    torch: 5, pages true, faults None;
    paged_with_faults: 0, pages true, faults Taking;
    paged_and_stitching_before_all_with_faults: 1, pages true, faults Taking;
    torch_with_faults: 5, pages true, faults Taking;
    paged_on_whole_allocations: 0, pages false, faults None;
    torch_on_whole_allocations: 5, pages false, faults None;
    paged_with_any_fault: 0, pages true, faults Any;
    paged_and_stitching_before_all_with_any_fault: 1, pages true, faults Any;
    torch_with_any_fault: 5, pages true, faults Any;
    whole_allocations_with_any_fault: 0, pages false, faults Any;
    whole_allocations_with_faults: 0, pages false, faults Taking;
}
