//! The walk: accumulation, aliasing, release, depth, errors, and ops of the user's own.

mod support;

use kiln_autograd::{Backward, enable_grad, grad, no_grad};
use kiln_tensor::op::{BackwardContext, Derivative, InputGrads, Keep, Op, OutputGrads, Outputs};
use kiln_tensor::saved::SavedTensors;
use kiln_tensor::{CrossEntropyConfig, DType, Device, Error, Reduction, Result, Tensor, apply};
use support::devices;

fn tensor(values: &[f32]) -> Result<Tensor> {
    Tensor::from_slice(values, values.len(), &Device::cpu())
}
fn leaf(values: &[f32]) -> Result<Tensor> {
    tensor(values)?.requires_grad()
}
fn values(t: &Tensor) -> Result<Vec<f32>> {
    t.grad()?.expect("a gradient").to_vec()
}

#[test]
fn gradients_accumulate_until_cleared() -> Result<()> {
    let x = leaf(&[1., 2.])?;
    x.square()?.sum_all()?.backward()?;
    x.sum_all()?.backward()?;
    assert_eq!(values(&x)?, [3., 5.]);
    Ok(())
}

#[test]
fn gradients_that_share_an_upstream_do_not_change_each_other() -> Result<()> {
    let (a, b) = (leaf(&[0.; 3])?, leaf(&[0.; 3])?);
    let c = a.add(&b)?;
    c.add(&a)?.sum_all()?.backward()?;
    assert_eq!((values(&a)?, values(&b)?), (vec![2.; 3], vec![1.; 3]));
    no_grad(|| a.grad()?.expect("a").zero_())?;
    assert_eq!(values(&b)?, [1.; 3]);
    Ok(())
}

#[test]
fn a_given_upstream_is_not_changed() -> Result<()> {
    let (x, g) = (leaf(&[1.; 3])?, tensor(&[1., 2., 3.])?);
    x.add(&x)?.backward_with(&g)?;
    x.add(&x)?.backward_with(&g)?;
    assert_eq!((values(&x)?, g.to_vec::<f32>()?), (vec![4., 8., 12.], vec![1., 2., 3.]));
    Ok(())
}

#[test]
fn an_expanded_upstream_gives_the_bits_of_a_full_one() -> Result<()> {
    type Loss = fn(&Tensor) -> Result<Tensor>;
    let functions: [Loss; 5] = [
        |x| {
            let config = CrossEntropyConfig { reduction: Reduction::None, ..Default::default() };
            x.cross_entropy_with(&Tensor::zeros(64, DType::I64, x.device())?, config)
        },
        |x| x.layer_norm(None, None, 1e-5),
        |x| x.matmul(&x.t()?),
        |x| x.softmax(0),
        |x| apply(Cube, &[x]),
    ];
    for (device, f) in devices().iter().flat_map(|device| functions.map(|f| (device, f))) {
        let data = Tensor::arange(0, 128, 1, DType::F32, device)?.sin()?.reshape((64, 2))?;
        let (x, y) = (data.requires_grad()?, data.requires_grad()?);
        f(&x)?.sum_all()?.backward()?;
        let out = f(&y)?;
        out.backward_with(&out.ones_like()?)?;
        let bits = |t: &Tensor| Ok::<_, Error>(values(t)?.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        assert_eq!(bits(&x)?, bits(&y)?);
    }
    Ok(())
}

/// `x^3`, as a user would write it.
struct Cube;

impl Op for Cube {
    fn name(&self) -> &'static str {
        "cube"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(no_grad(|| inputs[0].powf(3.0))?.into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[0])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?.mul(&saved.take(0)?.square()?)?.affine(3.0, 0.0)?;
        Ok([Some(g)].into_iter().collect())
    }
}

/// An op whose backward does what the test wants.
struct Odd(Derivative, fn(&Tensor) -> Result<Tensor>);

impl Op for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(inputs[0].detach().into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok([Some((self.1)(&ctx.only(grads)?)?)].into_iter().collect())
    }
    fn derivative(&self) -> Derivative {
        self.0
    }
}

#[test]
fn ops_of_the_users_own_enter_by_the_same_door() -> Result<()> {
    let x = leaf(&[1., 2.])?;
    apply(Cube, &[&x])?.sum_all()?.backward()?;
    assert_eq!(values(&x)?, [3., 12.]);
    Ok(())
}

#[test]
fn an_op_without_derivative_says_so_in_forward() -> Result<()> {
    let x = leaf(&[1.])?;
    let missing = || apply(Odd(Derivative::Missing, |g| Ok(g.clone())), &[&x]);
    assert!(matches!(missing(), Err(Error::NoDerivative { op: "odd" })));
    assert!(no_grad(missing).is_ok());
    assert!(!apply(Odd(Derivative::Discrete, |g| Ok(g.clone())), &[&x])?.tracked());
    Ok(())
}

/// An op made of other ops.
struct Step;

impl Op for Step {
    fn name(&self) -> &'static str {
        "step"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(inputs[0].exp()?.round()?.into())
    }
    fn backward(&self, _: OutputGrads, _: &mut SavedTensors, _: &BackwardContext<'_>) -> Result<InputGrads> {
        Err(Error::NoDerivative { op: "step" })
    }
    fn derivative(&self) -> Derivative {
        Derivative::Discrete
    }
}

#[test]
fn a_discrete_op_made_of_others_has_no_history() -> Result<()> {
    assert!(!apply(Step, &[&leaf(&[1.])?])?.tracked());
    Ok(())
}

#[test]
fn gradients_carry_no_history_into_leaves() -> Result<()> {
    let x = leaf(&[1., 2.])?;
    let tracked = |g: &Tensor| enable_grad(|| g.requires_grad()?.mul(g));
    apply(Odd(Derivative::Defined, tracked), &[&x])?.sum_all()?.backward()?;
    assert!(!x.grad()?.expect("a gradient").tracked());
    Ok(())
}

#[test]
fn an_upstream_from_another_device_is_an_error_that_names_it() -> Result<()> {
    let upstream = Tensor::ones(1, DType::F32, &Device::dry_run("1GiB")?)?;
    let e = leaf(&[1.])?.exp()?.backward_with(&upstream).unwrap_err().to_string();
    assert!(e.contains("dry-run") && e.contains("cpu"), "{e}");
    Ok(())
}

#[test]
fn a_gradient_of_the_wrong_shape_or_type_is_an_error() -> Result<()> {
    for wrong in [(|g| g.unsqueeze(0)) as fn(&Tensor) -> Result<Tensor>, |g| g.to_dtype(DType::F64)] {
        let x = leaf(&[1., 2.])?;
        let h = x.exp()?;
        assert!(apply(Odd(Derivative::Defined, wrong), &[&h])?.sum_all()?.backward().is_err());
        assert!(apply(Odd(Derivative::Defined, wrong), &[&x])?.sum_all()?.backward().is_err());
    }
    Ok(())
}

#[test]
fn a_failed_backward_marks_what_it_touched_as_partial() -> Result<()> {
    let (x, y, far) = (leaf(&[1.])?, leaf(&[2.])?, leaf(&[3.])?);
    let broken = apply(Odd(Derivative::Defined, |_| Err(Error::message("broken"))), &[&y])?;
    // The newest nodes go first: `x` has its gradient when the walk breaks.
    let loss = broken.add(&x)?;
    assert_eq!(loss.backward().expect_err("a failure").to_string(), "broken");
    assert!(x.grad().expect_err("partial").to_string().contains("partial"));
    assert!(y.grad()?.is_none() && far.grad()?.is_none());
    let kiln_tensor::tape::History::Leaf(handle) = x.history() else { panic!("a leaf") };
    handle.set_grad(None)?;
    x.square()?.backward()?;
    assert_eq!(values(&x)?, [2.]);
    Ok(())
}

#[test]
fn a_second_backward_is_an_error_unless_the_first_retains() -> Result<()> {
    let x = leaf(&[1., 2.])?;
    let loss = x.square()?.sum_all()?;
    loss.backward_retain()?;
    loss.backward()?;
    assert_eq!(values(&x)?, [4., 8.]);
    let message = loss.backward().expect_err("released").to_string();
    assert!(message.contains("backward_retain") && message.contains("backward.rs"), "{message}");
    Ok(())
}

#[test]
fn backward_from_what_has_no_history_or_many_elements_is_an_error() -> Result<()> {
    assert!(tensor(&[1.])?.backward().is_err());
    assert!(leaf(&[1., 2.])?.exp()?.backward().expect_err("two elements").to_string().contains("backward_with"));
    let x = leaf(&[1., 2.])?;
    assert!(x.exp()?.backward_with(&tensor(&[1.])?).is_err());
    assert!(!no_grad(|| x.exp())?.tracked() && !x.detach().exp()?.tracked());
    Ok(())
}

#[test]
fn a_saved_tensor_that_changed_in_place_is_an_error() -> Result<()> {
    let x = leaf(&[1., 2.])?;
    let h = x.exp()?;
    no_grad(|| h.zero_())?;
    let error = h.sum_all()?.backward().expect_err("changed");
    assert!(matches!(error, Error::SavedChanged { saved_by: "exp", changed_by: "zero_", .. }), "{error}");
    Ok(())
}

#[test]
fn gradients_of_chosen_tensors_touch_no_leaf() -> Result<()> {
    let (x, y) = (leaf(&[2.])?, leaf(&[3.])?);
    let h = x.mul(&y)?;
    let loss = h.square()?;
    let found = grad(&loss, &[&h, &x])?;
    assert_eq!((found[0].to_vec::<f32>()?, found[1].to_vec::<f32>()?), (vec![12.], vec![36.]));
    assert!(x.grad()?.is_none() && y.grad()?.is_none());
    assert!(grad(&x.exp()?, &[&y]).expect_err("independent").to_string().contains("does not depend"));
    assert!(grad(&x.exp()?, &[&tensor(&[1.])?]).is_err());
    Ok(())
}

#[test]
fn grad_leaves_the_rest_of_the_graph_whole() -> Result<()> {
    let (x, y) = (leaf(&[2.])?, leaf(&[3.])?);
    let (a, b) = (x.exp()?, y.square()?);
    let loss = a.add(&b)?;
    grad(&a, &[&x])?;
    b.backward()?;
    assert_eq!(values(&y)?, [6.]);
    assert!(loss.backward().is_err());
    Ok(())
}

#[test]
fn a_walk_inside_a_walk_leaves_its_modes_alone() -> Result<()> {
    // A backward that itself differentiates, with history on inside the walk.
    let op = Odd(Derivative::Defined, |g| {
        enable_grad(|| {
            let x = g.detach().requires_grad()?;
            let first = grad(&x.square()?.sum_all()?, &[&x])?;
            assert!(kiln_tensor::modes::is_grad_enabled());
            Ok(first[0].clone())
        })
    });
    let x = leaf(&[1., 2.])?;
    apply(op, &[&x])?.backward_with(&tensor(&[3., 5.])?)?;
    assert_eq!(values(&x)?, [6., 10.]);
    Ok(())
}

#[test]
fn gradients_come_only_where_they_lead() -> Result<()> {
    let (w, x) = (leaf(&[2.])?, tensor(&[3.])?);
    let y = x.exp()?.mul(&w)?;
    let (node, _) = y.node().expect("a node");
    assert_eq!(node.edges().iter().filter(|e| matches!(e, kiln_tensor::tape::Edge::None)).count(), 1);
    y.backward()?;
    assert!(x.grad()?.is_none());
    Ok(())
}

#[test]
fn saved_tensors_go_as_the_walk_passes() -> Result<()> {
    // Ten exps of 1 MiB save ten outputs; backward needs one gradient at a time, and each output dies with its node.
    let device = Device::dry_run("1GiB")?;
    let x = Tensor::zeros(1 << 18, DType::F32, &device)?.requires_grad()?;
    let mut y = x.exp()?;
    for _ in 0..9 {
        y = y.exp()?;
    }
    let loss = y.sum_all()?;
    drop(y);
    let forward = device.memory_stats().allocated.current;
    device.reset_peak_memory_stats();
    loss.backward()?;
    let peak = device.memory_stats().allocated.peak;
    assert!(peak <= forward + (3 << 20), "peak {peak}, forward {forward}");
    Ok(())
}

/// Runs `f` on a thread with a small stack.
fn on_a_small_stack(f: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    std::thread::Builder::new().stack_size(512 << 10).spawn(f).expect("a thread").join().expect("no overflow")
}

fn chain(x: &Tensor, length: usize) -> Result<Tensor> {
    let mut y = x.clone();
    for _ in 0..length {
        y = y.add(x)?;
    }
    Ok(y)
}

#[test]
fn a_chain_of_a_million_ops_needs_no_stack() -> Result<()> {
    on_a_small_stack(|| {
        let x = leaf(&[1.])?;
        let y = chain(&x, 1_000_000)?;
        y.backward()?;
        drop(y);
        assert_eq!(values(&x)?, [1_000_001.]);
        Ok(())
    })
}

#[test]
fn long_chains_drop_without_backward_by_a_clone_and_in_unwinding() -> Result<()> {
    on_a_small_stack(|| {
        let x = leaf(&[1.])?;
        drop(chain(&x, 100_000)?);
        let y = chain(&x, 100_000)?;
        let clone = y.clone();
        drop(y);
        drop(clone);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _y = chain(&x, 100_000).expect("a chain");
            std::panic::resume_unwind(Box::new("unwinding"));
        }));
        assert!(unwound.is_err());
        // Dropped in the middle of a backward that fails.
        let broken = apply(Odd(Derivative::Defined, |_| Err(Error::message("broken"))), &[&chain(&x, 50_000)?])?;
        let y = chain(&broken, 50_000)?;
        assert!(y.backward().is_err());
        Ok(())
    })
}

/// `exp` made of ops that change memory in place.
struct Composite;

impl Op for Composite {
    fn name(&self) -> &'static str {
        "composite"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let y = inputs[0].affine(0.5, 0.0)?.exp()?;
        y.mul_(&y.copy()?)?;
        assert!(!y.tracked());
        Ok(y.into())
    }
    fn save(&self, _: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&outputs.results[0])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok([Some(ctx.only(grads)?.mul(&saved.take(0)?)?)].into_iter().collect())
    }
}

#[test]
fn an_op_made_of_ops_leaves_one_node() -> Result<()> {
    let x = Tensor::from_vec(vec![0f64, 1.0], 2, &Device::cpu())?.requires_grad()?;
    let y = apply(Composite, &[&x])?;
    y.sum(0)?.backward()?;
    let (y, grad) = (y.to_vec::<f64>()?, x.grad()?.unwrap().to_vec::<f64>()?);
    assert_eq!(y, grad);
    x.zero_grad();
    assert!(x.grad()?.is_none());
    Ok(())
}

#[test]
fn an_error_from_main_reads_as_its_message() {
    let error = Tensor::zeros((2, 3), DType::F32, &Device::cpu()).and_then(|x| x.matmul(&x)).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
}
