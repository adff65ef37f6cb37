//! One suite for every policy on every source with every setting: what an allocator promises, whoever decides and wherever the
//! memory comes from.

mod behaviours;
#[path = "../common/mod.rs"]
mod common;
mod matrix;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let mut trials = Vec::new();
    for setup in matrix::all() {
        for (name, behaviour) in behaviours::ALL {
            let name = format!("{}/{name}", setup.name());
            trials.push(Trial::test(name, move || {
                behaviour(&setup);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
