//! Checkpoints: the same gradients bit for bit, with less memory, or an error.

use crate::support::{bits, cases, leaf, numbers, read, tensor};
use kiln::nn::{Dropout, Linear, Module, Params, Relu, Sequential, checkpoint};
use kiln::{Backward, Category, DType, Device, Error, Result, Tensor, autocast, checkpoint_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

cases![
    dropout_is_recomputed_bit_for_bit,
    nested_checkpoints_are_bit_equal_and_take_less,
    a_checkpoint_can_be_walked_twice,
    backward_inside_a_checkpoint_works,
    recomputation_has_the_casts_of_forward,
    shared_parameters_and_leaves_inside_need_no_care,
    other_work_in_recomputation_is_an_error,
    an_input_changed_in_place_is_an_error,
    an_activation_of_zeros_passes_zeros_on,
];

/// Gradients of a loss with respect to an input and all parameters.
fn gradients(params: &Params, x: &Tensor, forward: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Vec<Vec<u64>>> {
    let x = x.requires_grad()?;
    params.trainable().iter().for_each(|p| p.zero_grad());
    forward(&x)?.square()?.sum_all()?.backward()?;
    let params = params.trainable().into_iter().map(|p| p.grad());
    [x.grad()].into_iter().chain(params).map(|g| bits(&g?.expect("a gradient"))).collect()
}

fn dropout_is_recomputed_bit_for_bit(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let block = Sequential::new()
        .then(Linear::new(16, 32, &params.at("a"))?)
        .then(Dropout::new(0.5)?)
        .then(Relu)
        .then(Linear::new(32, 16, &params.at("b"))?)
        .then(Dropout::new(0.5)?);
    let x = tensor(&numbers(8 * 16, 1), (8, 16), DType::F32, d)?;
    for seed in 0..10 {
        d.manual_seed(seed);
        let plain = gradients(&params, &x, |x| block.forward(x))?;
        let state = d.generator_state();
        d.manual_seed(seed);
        let checkpointed = gradients(&params, &x, |x| checkpoint(&block, x))?;
        assert!(checkpointed == plain, "seed {seed}");
        assert_eq!(d.generator_state(), state);
        d.manual_seed(seed);
        // Each recomputation replays its own positions, whatever was drawn since.
        let mixed = gradients(&params, &x, |x| {
            let y = checkpoint(&block, x)?;
            Tensor::rand(1000, DType::F32, d)?;
            Ok(y)
        })?;
        assert!(mixed == plain, "seed {seed}, with draws between");
    }
    Ok(())
}

/// sin(exp(x)) behind `depth` checkpoints, and how often it ran.
fn nested(x: &Tensor, depth: usize, runs: &Arc<AtomicUsize>) -> Result<Tensor> {
    if depth == 0 {
        runs.fetch_add(1, Ordering::Relaxed);
        return x.exp()?.sin();
    }
    let runs = runs.clone();
    checkpoint_fn(&[x], move |xs| nested(&xs[0], depth - 1, &runs))
}

fn nested_checkpoints_are_bit_equal_and_take_less(d: &Device) -> Result<()> {
    let n = 4096;
    let mut plain = None;
    let mut held = usize::MAX;
    for depth in 0..=3 {
        let (x, runs) = (Tensor::full(0.3, n, DType::F32, d)?.requires_grad()?, Arc::default());
        // Several blocks in a row: what each saves adds up.
        let y = (0..4).try_fold(x.clone(), |y, _| nested(&y, depth, &runs))?;
        let activations = d.memory_stats().category(Category::Activations).current;
        y.sum_all()?.backward()?;
        let found = bits(&x.grad()?.unwrap())?;
        assert!(*plain.get_or_insert(found.clone()) == found, "depth {depth}");
        assert!(runs.load(Ordering::Relaxed) <= 4 * (depth + 1), "{runs:?} runs at depth {depth}");
        assert!(activations <= held, "{activations} bytes at depth {depth}, {held} before");
        held = activations;
    }
    // One around them all keeps its input alone.
    let (x, runs) = (Tensor::full(0.3, n, DType::F32, d)?.requires_grad()?, Arc::new(AtomicUsize::new(0)));
    let before = d.memory_stats().category(Category::Activations).current;
    let inner = runs.clone();
    let y = checkpoint_fn(&[&x], move |xs| (0..4).try_fold(xs[0].clone(), |y, _| nested(&y, 1, &inner)))?;
    assert_eq!(d.memory_stats().category(Category::Activations).current, before + 4 * n);
    y.sum_all()?.backward()?;
    assert!(*plain.get_or_insert_default() == bits(&x.grad()?.unwrap())?);
    Ok(())
}

fn a_checkpoint_can_be_walked_twice(d: &Device) -> Result<()> {
    let x = leaf(&numbers(4096, 1), 4096, d)?;
    let y = checkpoint_fn(&[&x], |xs| xs[0].exp()?.sin()?.tanh())?.sum_all()?;
    let activations = || d.memory_stats().category(Category::Activations).current;
    let before = activations();
    y.backward_retain()?;
    let once = read(&x.grad()?.unwrap())?;
    assert_eq!(activations(), before, "a walk keeps nothing of what it recomputed");
    y.backward()?;
    assert_eq!(read(&x.grad()?.unwrap())?, once.iter().map(|g| 2.0 * g).collect::<Vec<_>>());
    Ok(())
}

fn backward_inside_a_checkpoint_works(d: &Device) -> Result<()> {
    let x = leaf(&numbers(100, 1), 100, d)?;
    let f = |xs: &[Tensor]| {
        let h = xs[0].tanh()?;
        let inner = h.detach().requires_grad()?;
        inner.exp()?.square()?.sum_all()?.backward()?;
        h.dropout(0.5)?.sin()?.mul(&inner.grad()?.expect("a gradient"))
    };
    let plain = x.requires_grad()?;
    f(std::slice::from_ref(&plain))?.sum_all()?.backward()?;
    d.manual_seed(0);
    checkpoint_fn(&[&x], f)?.sum_all()?.backward()?;
    assert_eq!(bits(&x.grad()?.unwrap())?, bits(&plain.grad()?.unwrap())?);
    Ok(())
}

fn recomputation_has_the_casts_of_forward(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let (a, b) = (Linear::new(8, 8, &params.at("a"))?, Linear::new(8, 4, &params.at("b"))?);
    let f = move |x: &Tensor| {
        let h = a.forward(x)?.relu()?;
        // A region inside stays in f32.
        let h = autocast(DType::F32, || h.to_dtype(DType::F32)?.tanh()?.matmul(&Tensor::eye(8, DType::F32, h.device())?))?;
        assert_eq!(h.dtype(), DType::F32);
        b.forward(&h)
    };
    let x = tensor(&numbers(32, 1), (4, 8), DType::F32, d)?;
    for low in [DType::F16, DType::BF16] {
        // Backward runs outside of autocast.
        let plain = gradients(&params, &x, |x| autocast(low, || f(x))?.to_dtype(DType::F32))?;
        let checkpointed = gradients(&params, &x, |x| autocast(low, || checkpoint(&f, x))?.to_dtype(DType::F32))?;
        assert!(plain == checkpointed, "{low}");
    }
    Ok(())
}

fn shared_parameters_and_leaves_inside_need_no_care(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let layer = Linear::new(6, 6, &params)?;
    let f = move |x: &Tensor| layer.forward(&layer.forward(x)?.tanh()?);
    let x = tensor(&numbers(12, 1), (2, 6), DType::F32, d)?;
    let plain = gradients(&params, &x, |x| f(&f(x)?))?;
    assert!(gradients(&params, &x, |x| f(&checkpoint(&f, x)?))? == plain);
    assert!(gradients(&params, &x, |x| checkpoint(&f, &checkpoint(&f, x)?))? == plain);
    // An input that wants no gradient.
    let y = checkpoint(&f, &x)?;
    params.trainable().iter().for_each(|p| p.zero_grad());
    y.sum_all()?.backward()?;
    assert!(params.trainable().iter().all(|p| p.grad().is_ok_and(|g| g.is_some())));
    Ok(())
}

fn other_work_in_recomputation_is_an_error(d: &Device) -> Result<()> {
    let x = leaf(&numbers(6, 1), (2, 3), d)?;
    let check = |f: fn(&Tensor, bool) -> Result<Tensor>, parts: &[&str]| -> Result<()> {
        let flag = Arc::new(AtomicBool::new(false));
        let seen = flag.clone();
        let y = checkpoint_fn(&[&x], move |xs| f(&xs[0], seen.load(Ordering::Relaxed)))?.sum_all()?;
        flag.store(true, Ordering::Relaxed);
        let e = y.backward().unwrap_err();
        assert!(matches!(e, Error::Checkpoint(_)), "{e}");
        parts.iter().for_each(|part| assert!(e.to_string().contains(part), "{part}: {e}"));
        Ok(())
    };
    check(|x, flag| if flag { x.tanh()?.exp() } else { x.exp()?.tanh() }, &["0", "exp", "tanh", "[2, 3]"])?;
    check(|x, flag| if flag { x.narrow(0, 0, 1)?.exp()?.sum_all() } else { x.exp()?.sum_all() }, &["[2, 3]", "[1, 3]"])?;
    check(|x, flag| x.to_dtype(if flag { DType::F64 } else { DType::F32 })?.exp()?.sum_all(), &["f32", "f64"])?;
    check(|x, flag| if flag { x.sum_all() } else { x.exp()?.sum_all() }, &["fewer", "exp"])?;
    check(|x, flag| if flag { x.dropout(0.5)?.exp()?.sum_all() } else { x.exp()?.sum_all() }, &["random"])
}

fn an_input_changed_in_place_is_an_error(d: &Device) -> Result<()> {
    let (x, w) = (tensor(&numbers(4, 1), 4, DType::F32, d)?, leaf(&[2.], 1, d)?);
    let factor = w.clone();
    let y = checkpoint_fn(&[&x], move |xs| xs[0].mul(&factor))?.sum_all()?;
    x.zero_()?;
    let e = y.backward().unwrap_err();
    assert!(matches!(e, Error::SavedChanged { saved_by: "checkpoint", changed_by: "zero_", .. }), "{e}");
    Ok(())
}

fn an_activation_of_zeros_passes_zeros_on(d: &Device) -> Result<()> {
    let x = Tensor::ones((3, 2, 1), DType::F32, d)?.requires_grad()?;
    let y = checkpoint_fn(&[&x], |xs| xs[0].layer_norm(None, None, 1e-5)?.relu())?;
    y.square()?.sum_all()?.backward()?;
    assert_eq!((x.grad()?.unwrap().dims().to_vec(), read(&x.grad()?.unwrap())?), (vec![3, 2, 1], vec![0.0; 6]));
    Ok(())
}
