//! Every byte is counted under what it is for.

use crate::support::cases;
use kiln::nn::{Adam, DataLoader, Linear, Module, Optimizer, Params, TensorDataset};
use kiln::{Backward, Category, DType, Device, Result, Tensor, no_grad};

cases![
    bytes_of_a_training_step_by_category,
    a_temporary_is_an_activation_while_it_is_saved,
    batches_are_inputs,
    requests_are_counted_in_steps_of_512_bytes,
];

/// Live bytes of a category.
fn bytes(d: &Device, category: Category) -> usize {
    d.memory_stats().category(category).current
}

fn bytes_of_a_training_step_by_category(d: &Device) -> Result<()> {
    let before = d.memory_stats();
    let grown = |category| bytes(d, category) - before.category(category).current;
    let params = Params::new(d);
    let layer = Linear::new(64, 32, &params)?;
    let weights = 64 * 32 * 4 + 512;
    assert_eq!(grown(Category::Parameters), weights);
    let mut adam = Adam::new(params.trainable(), Default::default())?;
    let x = Tensor::ones((16, 64), DType::F32, d)?;
    layer.forward(&x)?.square()?.sum_all()?.backward()?;
    assert_eq!((grown(Category::Gradients), grown(Category::Activations)), (weights, 0));
    adam.step()?;
    // Two moments for each parameter, and the clock.
    assert_eq!(grown(Category::OptimizerState), 2 * weights + 512);
    adam.zero_grad();
    assert_eq!((grown(Category::Gradients), grown(Category::Temporaries)), (0, 16 * 64 * 4));
    Ok(())
}

fn a_temporary_is_an_activation_while_it_is_saved(d: &Device) -> Result<()> {
    let now = || (bytes(d, Category::Temporaries), bytes(d, Category::Activations));
    let x = Tensor::ones(1024, DType::F32, d)?.requires_grad()?;
    let (temporaries, activations) = now();
    let y = x.exp()?;
    assert_eq!(now(), (temporaries, activations + 4096));
    let z = y.square()?;
    // The second save of `y` is no second buffer.
    assert_eq!(now(), (temporaries + 4096, activations + 4096));
    let loss = z.sum_all()?;
    drop(z);
    loss.backward()?;
    assert_eq!(now(), (temporaries + 4096 + 512, activations));
    drop((y, loss));
    let y = no_grad(|| x.exp())?;
    assert_eq!(now(), (temporaries + 4096, activations));
    drop(y);
    assert_eq!(now(), (temporaries, activations));
    Ok(())
}

fn batches_are_inputs(d: &Device) -> Result<()> {
    let before = bytes(d, Category::Inputs);
    let loader =
        DataLoader::new(TensorDataset::new(vec![1f32; 8 * 128], (8, 128), vec![0i64; 8], 8)?).batch_size(4).pin_memory(d)?;
    let batch = loader.epoch(0).next().expect("a batch")?;
    assert_eq!(bytes(d, Category::Inputs) - before, 4 * 128 * 4 + 512);
    drop(batch);
    assert_eq!(bytes(d, Category::Inputs), before);
    Ok(())
}

fn requests_are_counted_in_steps_of_512_bytes(d: &Device) -> Result<()> {
    for (n, rounded) in [(0, 0), (1, 512), (512, 512), (513, 1024), (5 << 20, 5 << 20), ((5 << 20) + 1, (5 << 20) + 512)] {
        let before = d.memory_stats();
        let _x = Tensor::zeros(n, DType::U8, d)?;
        let after = d.memory_stats();
        assert_eq!(
            (after.allocated.current - before.allocated.current, after.requested.current - before.requested.current),
            (rounded, n)
        );
        assert!(after.reserved.current >= after.allocated.current);
    }
    Ok(())
}
