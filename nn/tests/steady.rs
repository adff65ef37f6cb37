//! Memory and nodes over many steps. Alone in its process, since nodes are counted for all of it.

use kiln_alloc::Category;
use kiln_autograd::Backward;
use kiln_nn::{AdamW, GradScaler, Init, Optimizer, Params, clip_grad_norm_unchecked};
use kiln_tensor::tape::Node;
use kiln_tensor::{Device, Result};

#[test]
fn memory_and_nodes_stay_flat_over_1000_steps() -> Result<()> {
    let device = Device::dry_run("1GiB")?;
    let params = Params::new(&device);
    let w = params.create("w", (64, 64), Init::Ones)?;
    let mut adam = AdamW::new(params.trainable(), Default::default())?;
    let mut scaler = GradScaler::default();
    let mut step = |i: usize| -> Result<(usize, usize)> {
        scaler.scale(&w.matmul(&w)?.sum_all()?)?.backward()?;
        scaler.unscale(&mut adam)?;
        clip_grad_norm_unchecked(adam.parameters(), 1.0)?;
        adam.set_lr(1e-3 / (i + 1) as f64)?;
        scaler.step(&mut adam)?;
        scaler.update()?;
        adam.zero_grad();
        Ok((device.memory_stats().allocated.current, Node::live_count()))
    };
    step(0)?;
    let second = step(1)?;
    for i in 2..1000 {
        assert_eq!(step(i)?, second);
    }
    assert_eq!(second.1, 0);
    // Two moments of each number.
    let state = device.memory_stats().category(Category::OptimizerState).current;
    assert!((2 * 4 * 64 * 64..2 * 4 * 64 * 64 + 4096).contains(&state), "{state}");
    Ok(())
}
