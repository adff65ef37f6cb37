//! Long graphs: no recursion, and nothing kept that backward does not read.

use crate::support::{Fails, cases, close, gradient, leaf, live, numbers, tensor};
use kiln::nn::{Adam, AdamConfig, Init, LayerNorm, Linear, Module, Optimizer, Params, clip_grad_norm_unchecked};
use kiln::tensor::op::apply;
use kiln::tensor::tape::Node;
use kiln::{Backward, DType, Device, Result, Tensor};

cases![
    a_long_chain_is_walked_and_dropped_on_a_small_stack,
    long_chains_are_dropped_in_every_way,
    forwards_without_backward_leave_nothing,
    steps_of_an_optimizer_leave_nothing,
];

/// Runs `f` on a thread with a stack of 512 KiB.
fn on_a_small_stack(f: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(512 << 10).spawn_scoped(scope, f).expect("a thread starts");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// `x` with 1 added `n` times.
fn chain(x: &Tensor, n: usize) -> Result<Tensor> {
    let one = Tensor::scalar(1f32, x.device())?;
    (0..n).try_fold(x.clone(), |y, _| &y + &one)
}

fn a_long_chain_is_walked_and_dropped_on_a_small_stack(d: &Device) -> Result<()> {
    let n = if d.is_cuda() { 100_000 } else { 1_000_000 };
    on_a_small_stack(|| {
        let x = leaf(&[1.], 1, d)?;
        let before = Node::live_count();
        let y = chain(&x, n)?;
        assert_eq!(Node::live_count() - before, n);
        y.backward()?;
        assert_eq!(gradient(&x)?, [1.0]);
        drop(y);
        assert_eq!(Node::live_count(), before);
        Ok(())
    })
}

fn long_chains_are_dropped_in_every_way(d: &Device) -> Result<()> {
    const N: usize = 20_000;
    on_a_small_stack(|| {
        let x = leaf(&[1.], 1, d)?;
        let before = Node::live_count();
        // Without backward, each node with a saved tensor.
        let y = (0..N).try_fold(x.clone(), |y, _| y.tanh())?;
        let again = y.clone();
        drop(y);
        assert_eq!(Node::live_count() - before, N);
        drop(again);
        // In the middle of backward.
        let y = chain(&apply(Fails, &[&chain(&x, N)?])?, N)?;
        assert!(y.backward().is_err());
        drop(y);
        // While a panic unwinds.
        let y = chain(&x, N)?;
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _moved = y;
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err());
        assert_eq!(Node::live_count(), before);
        Ok(())
    })
}

struct Mlp {
    a: Linear,
    norm: LayerNorm,
    b: Linear,
}

impl Mlp {
    fn new(params: &Params) -> Result<Mlp> {
        Ok(Mlp {
            a: Linear::new(8, 16, &params.at("a"))?,
            norm: LayerNorm::new(16, &params.at("norm"))?,
            b: Linear::new(16, 2, &params.at("b"))?,
        })
    }
    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        self.b.forward(&self.norm.forward(&self.a.forward(x)?.gelu()?)?.dropout(0.1)?)?.square()?.mean_all()
    }
}

fn forwards_without_backward_leave_nothing(d: &Device) -> Result<()> {
    let model = Mlp::new(&Params::new(d))?;
    let x = tensor(&numbers(32, 1), (4, 8), DType::F32, d)?;
    model.loss(&x)?;
    let before = (live(d), Node::live_count());
    for i in 0..10_000 {
        let loss = model.loss(&x)?;
        drop(loss);
        assert_eq!((live(d), Node::live_count()), before, "after forward {i}");
    }
    Ok(())
}

fn steps_of_an_optimizer_leave_nothing(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let w = params.create("w", (8, 8), Init::Ones)?;
    let average = Tensor::zeros((8, 8), DType::F32, d)?;
    let mut adam = Adam::new(params.trainable(), AdamConfig { weight_decay: 0.1, ..Default::default() })?;
    let mut flat = None;
    for i in 0..1000 {
        w.matmul(&w)?.sum_all()?.backward()?;
        clip_grad_norm_unchecked(adam.parameters(), 1.0)?;
        adam.set_lr(1e-3 / f64::from(i + 1))?;
        adam.step()?;
        kiln::no_grad(|| average.copy_(&average.lerp(&w, 0.01)?))?;
        adam.zero_grad();
        let now = (live(d), Node::live_count(), d.memory_stats().live_blocks);
        if i > 0 {
            assert_eq!(*flat.get_or_insert(now), now, "after step {i}");
        }
    }
    close(&[average.sum_all()?.to_scalar::<f32>()?.into()], &[64.0], 0.1, "the average follows the weight");
    Ok(())
}
