//! Checkpoints: the gradients of the plain graph bit for bit, less memory, and errors where the function does other work.

mod support;

use kiln_autograd::{Backward, checkpoint_fn, eval, grad, no_grad};
use kiln_tensor::tape::Node;
use kiln_tensor::{DType, Device, Error, Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use support::devices;

fn data(n: usize, device: &Device) -> Result<Tensor> {
    Tensor::arange(0, n as i64, 1, DType::F32, device)?.affine(0.37, 0.1)?.sin()
}
fn leaf(n: usize) -> Result<Tensor> {
    data(n, &Device::cpu())?.requires_grad()
}
fn bits(t: &Tensor) -> Result<Vec<u32>> {
    Ok(t.grad()?.expect("a gradient").to_vec::<f32>()?.iter().map(|v| v.to_bits()).collect())
}

/// Applies `f` to a tensor, as it is or in a checkpoint.
fn run(checkpointed: bool, x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static) -> Result<Tensor> {
    if checkpointed { checkpoint_fn(&[x], move |xs| f(&xs[0])) } else { f(x) }
}

#[test]
fn dropout_draws_the_same_masks_and_the_generator_moves_the_same() -> Result<()> {
    // No other test of this file draws from these devices.
    for (device, seed) in devices().iter().flat_map(|device| (0..10).map(move |seed| (device, seed))) {
        let step = |checkpointed: bool| {
            device.manual_seed(seed);
            let x = data(64, device)?.requires_grad()?;
            let y = run(checkpointed, &x, |x| x.dropout(0.5)?.exp()?.dropout(0.5)?.sin())?;
            y.sum_all()?.backward()?;
            Ok::<_, Error>((bits(&x)?, device.generator_state()))
        };
        assert_eq!(step(true)?, step(false)?);
    }
    Ok(())
}

#[test]
fn evaluation_mode_is_that_of_forward() -> Result<()> {
    let x = leaf(8)?;
    let y = eval(|| run(true, &x, |x| x.dropout(0.5)?.exp()?.sin()))?;
    y.sum_all()?.backward()?;
    let plain = leaf(8)?;
    plain.exp()?.sin()?.sum_all()?.backward()?;
    assert_eq!(bits(&x)?, bits(&plain)?);
    Ok(())
}

#[test]
fn leaves_in_the_closure_and_untracked_inputs_get_their_gradients() -> Result<()> {
    for device in devices() {
        let gradients = |checkpointed: bool| {
            let (x, w) = (data(16, &device)?.reshape((4, 4))?, data(16, &device)?.requires_grad()?);
            let v = w.clone();
            let y = run(checkpointed, &x, move |x| x.matmul(&v.reshape((4, 4))?)?.gelu()?.matmul(&v.reshape((4, 4))?))?;
            y.sum_all()?.backward()?;
            assert!(x.grad()?.is_none());
            bits(&w)
        };
        assert_eq!(gradients(true)?, gradients(false)?);
    }
    Ok(())
}

#[test]
fn parameters_shared_with_the_outside_gather_all_gradients() -> Result<()> {
    let gradients = |checkpointed: bool| {
        let w = leaf(16)?;
        let (outside, v) = (w.exp()?, w.clone());
        let y = run(checkpointed, &outside, move |x| x.mul(&v)?.tanh()?.mul(&v))?;
        y.mul(&w)?.sum_all()?.backward()?;
        bits(&w)
    };
    assert_eq!(gradients(true)?, gradients(false)?);
    Ok(())
}

#[test]
fn several_inputs_and_outputs_of_any_form() -> Result<()> {
    let gradients = |checkpointed: bool| {
        let (x, y) = (leaf(8)?, leaf(8)?);
        let f = |xs: &[Tensor]| Ok((xs[0].mul(&xs[1])?.exp()?, [xs[1].sin()?, xs[0].clone()]));
        let (a, [b, c]) = if checkpointed { checkpoint_fn(&[&x, &y], f)? } else { f(&[x.clone(), y.clone()])? };
        // Two walks through one frame: the second finds what the first left.
        a.sum_all()?.backward()?;
        b.mul(&c)?.sum_all()?.backward()?;
        Ok::<_, Error>((bits(&x)?, bits(&y)?))
    };
    assert_eq!(gradients(true)?, gradients(false)?);
    Ok(())
}

#[test]
fn inside_no_grad_it_is_a_plain_call() -> Result<()> {
    let (x, nodes) = (leaf(4)?, Arc::new(AtomicUsize::new(0)));
    let calls = nodes.clone();
    let y = no_grad(|| {
        run(true, &x, move |x| {
            calls.fetch_add(1, SeqCst);
            x.exp()
        })
    })?;
    assert!(!y.tracked() && nodes.load(SeqCst) == 1);
    Ok(())
}

/// `sin(exp(x))` in `depth` checkpoints, one inside the other; counts how often the innermost runs.
fn nested(depth: usize, x: &Tensor, runs: &Arc<AtomicUsize>) -> Result<Tensor> {
    if depth == 0 {
        runs.fetch_add(1, SeqCst);
        return x.exp()?.sin();
    }
    let runs = runs.clone();
    checkpoint_fn(&[x], move |xs| nested(depth - 1, &xs[0], &runs))
}

#[test]
fn nested_checkpoints_give_the_same_bits_in_few_runs() -> Result<()> {
    let plain = Tensor::from_vec(vec![0.3f32], 1, &Device::cpu())?.requires_grad()?;
    plain.exp()?.sin()?.backward()?;
    for depth in 1..=3 {
        let x = Tensor::from_vec(vec![0.3f32], 1, &Device::cpu())?.requires_grad()?;
        let runs = Arc::new(AtomicUsize::new(0));
        nested(depth, &x, &runs)?.backward()?;
        assert_eq!(bits(&x)?, bits(&plain)?);
        assert!(runs.load(SeqCst) <= depth + 1, "{} runs at depth {depth}", runs.load(SeqCst));
    }
    Ok(())
}

#[test]
fn a_second_backward_with_retain_recomputes_and_keeps_nothing() -> Result<()> {
    let device = Device::dry_run("1GiB")?;
    let x = data(1 << 16, &device)?.requires_grad()?;
    let runs = Arc::new(AtomicUsize::new(0));
    let loss = nested(2, &x, &runs)?.sum_all()?;
    loss.backward_retain()?;
    let (first, bytes) = (runs.load(SeqCst), device.memory_stats().allocated.current);
    loss.backward_retain()?;
    assert!(runs.load(SeqCst) > first);
    assert_eq!(device.memory_stats().allocated.current, bytes);
    loss.backward()?;
    assert!(loss.backward().is_err());
    Ok(())
}

#[test]
fn retained_and_last_backward_agree() -> Result<()> {
    let x = leaf(8)?;
    let loss = nested(2, &x, &Arc::default())?.sum_all()?;
    loss.backward_retain()?;
    let once = x.grad()?.expect("a gradient").to_vec::<f32>()?;
    loss.backward()?;
    let twice = x.grad()?.expect("a gradient").to_vec::<f32>()?;
    assert_eq!(twice, once.iter().map(|g| g + g).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_backward_inside_the_function_works() -> Result<()> {
    let gradients = |checkpointed: bool| {
        let x = leaf(8)?;
        let y = run(checkpointed, &x, |x| {
            let h = x.exp()?;
            let inner = h.detach().requires_grad()?;
            let slope = grad(&inner.square()?.sin()?.sum_all()?, &[&inner])?;
            h.mul(&slope[0])?.sin()
        })?;
        y.sum_all()?.backward()?;
        bits(&x)
    };
    assert_eq!(gradients(true)?, gradients(false)?);
    Ok(())
}

#[test]
fn deeper_checkpoints_hold_less() -> Result<()> {
    // Forward keeps the input of each block of four ops in place of all sixteen outputs.
    let held = |checkpointed: bool| {
        let device = Device::dry_run("1GiB")?;
        let mut y = data(1 << 18, &device)?.requires_grad()?;
        for _ in 0..4 {
            y = run(checkpointed, &y, |x| x.exp()?.tanh()?.exp()?.tanh())?;
        }
        let held = device.memory_stats().allocated.current >> 20;
        device.reset_peak_memory_stats();
        y.sum_all()?.backward()?;
        Ok::<_, Error>((held, device.memory_stats().allocated.peak >> 20))
    };
    let ((plain, _), (checkpointed, peak)) = (held(false)?, held(true)?);
    assert_eq!((plain, checkpointed), (16, 5));
    assert!(peak <= 13, "{peak} MiB");
    Ok(())
}

#[test]
fn recomputation_ends_where_all_is_known() -> Result<()> {
    let (x, late) = (leaf(4)?, Arc::new(AtomicUsize::new(0)));
    let count = late.clone();
    let y = run(true, &x, move |x| {
        let h = x.exp()?.sin()?;
        let sum = h.add(&h)?;
        count.fetch_add(1, SeqCst);
        Ok(sum)
    })?;
    y.sum_all()?.backward()?;
    assert_eq!(late.load(SeqCst), 1);
    Ok(())
}

#[test]
fn other_work_in_recomputation_is_an_error_that_names_it() -> Result<()> {
    type Block = fn(&Tensor, bool) -> Result<Tensor>;
    let blocks: [(Block, &[&str]); 4] = [
        (
            |x, changed| if changed { x.sin()?.exp() } else { x.exp()?.sin() },
            &["saved tensor 0", "exp of [4], f32", "sin of [4], f32"],
        ),
        (|x, changed| x.exp()?.reshape(if changed { (1, 4) } else { (2, 2) })?.sin(), &["saved tensor 1", "[2, 2]", "[1, 4]"]),
        (|x, changed| x.exp()?.to_dtype(if changed { DType::F64 } else { DType::F32 })?.sin(), &["saved tensor 1", "f32", "f64"]),
        (|x, changed| if changed { x.exp() } else { x.exp()?.sin() }, &["fewer"]),
    ];
    for (block, words) in blocks {
        let (x, changed) = (leaf(4)?, Arc::new(AtomicBool::new(false)));
        let flag = changed.clone();
        let y = run(true, &x, move |x| block(x, flag.load(SeqCst)))?;
        changed.store(true, SeqCst);
        let error = y.to_dtype(DType::F32)?.sum_all()?.backward().expect_err("other work");
        assert!(matches!(error, Error::Checkpoint(_)), "{error}");
        words.iter().for_each(|word| assert!(error.to_string().contains(word), "{error} lacks {word}"));
    }
    Ok(())
}

#[test]
fn an_input_or_weight_changed_in_place_is_an_error() -> Result<()> {
    // `x` is saved for the gradient of `w`; `w` itself and `bias` are read by no gradient.
    let (x, w, bias) = (data(4, &Device::cpu())?, leaf(4)?, leaf(4)?);
    for changed in [&x, &w, &bias] {
        let (v, b) = (w.clone(), bias.clone());
        let y = run(true, &x, move |x| x.mul(&v)?.add(&b)?.exp())?;
        no_grad(|| changed.zero_())?;
        let error = y.sum_all()?.backward().expect_err("changed");
        assert!(error.to_string().contains("changed in place by zero_"), "{error}");
    }
    Ok(())
}

#[test]
fn more_random_numbers_in_recomputation_are_an_error() -> Result<()> {
    let device = Device::dry_run("1GiB")?;
    let (x, changed) = (data(4, &device)?.requires_grad()?, Arc::new(AtomicBool::new(false)));
    let flag = changed.clone();
    let y = run(true, &x, move |x| if flag.load(SeqCst) { x.dropout(0.5)?.dropout(0.5)?.exp() } else { x.dropout(0.5)?.exp() })?;
    changed.store(true, SeqCst);
    assert!(matches!(y.sum_all()?.backward(), Err(Error::Checkpoint(_))));
    Ok(())
}

#[test]
fn errors_of_the_function_come_through_in_forward_and_recomputation() -> Result<()> {
    let x = leaf(4)?;
    assert!(run(true, &x, |_| Err(Error::message("mine"))).is_err());
    let fails = Arc::new(AtomicBool::new(false));
    let flag = fails.clone();
    let y = run(true, &x, move |x| if flag.load(SeqCst) { Err(Error::message("mine")) } else { x.exp() })?;
    fails.store(true, SeqCst);
    assert_eq!(y.sum_all()?.backward().expect_err("an error").to_string(), "mine");
    Ok(())
}

#[test]
fn a_dropped_checkpoint_frees_its_inputs() -> Result<()> {
    let device = Device::dry_run("1GiB")?;
    let x = data(1000, &device)?.requires_grad()?;
    let bytes = device.memory_stats().allocated.current;
    let y = run(true, &x.affine(2.0, 0.0)?, |x| x.exp()?.sin())?;
    let (node, _) = y.node().expect("a node");
    assert!(Node::live_count() > 0 && node.name() == "sin");
    drop(y);
    assert_eq!(device.memory_stats().allocated.current, bytes);
    Ok(())
}
