//! Backward: what gradients are, who shares them, and what goes wrong out loud.

use crate::support::{Fails, cases, close, each_close, f32s, gradient, leaf, live, numbers, read};
use kiln::nn::{LayerNorm, Linear, Module, Params};
use kiln::tensor::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use kiln::tensor::saved::SavedTensors;
use kiln::tensor::tape::{Edge, History};
use kiln::{Backward, Category, DType, Device, Error, Result, Tensor, autocast, grad, no_grad};

cases![
    a_tensor_used_twice_gathers_both_gradients,
    powers_with_one_and_both_operands_tracked,
    gradients_of_siblings_share_no_memory,
    broadcast_operands_get_the_known_gradients,
    an_expanded_upstream_is_as_good_as_a_whole_one,
    the_branch_not_taken_gets_no_gradient,
    ties_share_the_gradient,
    powers_at_their_kinks,
    changes_in_place_are_refused_while_gradients_are_on,
    a_saved_tensor_changed_in_place_is_an_error_that_names_both_ops,
    a_graph_is_walked_once_unless_retained,
    a_failed_backward_marks_gradients_partial,
    grad_touches_no_leaf,
    nodes_know_the_line_that_recorded_them,
    an_op_of_the_users_own_is_an_op_like_any,
    operands_without_gradients_get_no_buffers,
    activations_go_as_backward_passes,
];

fn a_tensor_used_twice_gathers_both_gradients(d: &Device) -> Result<()> {
    for (values, n, wanted) in [(vec![1., 2., 3., 4.], 2, vec![8., 12., 8., 12.]), (vec![1.], 1, vec![2.])] {
        let x = leaf(&values, (n, n), d)?;
        x.matmul(&x.t()?)?.sum_all()?.backward()?;
        assert_eq!(gradient(&x)?, wanted);
    }
    Ok(())
}

fn powers_with_one_and_both_operands_tracked(d: &Device) -> Result<()> {
    let (two, three) = (f32s(&[2.], (), d)?, f32s(&[3.], (), d)?);
    let (x, y) = (two.requires_grad()?, three.requires_grad()?);
    x.pow(&three)?.backward()?;
    each_close(&gradient(&x)?, &[12.], 1e-6);
    two.pow(&y)?.backward()?;
    each_close(&gradient(&y)?, &[5.545177444], 1e-6);
    let x = two.requires_grad()?;
    x.pow(&x)?.backward()?;
    each_close(&gradient(&x)?, &[6.772588722], 1e-6);
    Ok(())
}

fn gradients_of_siblings_share_no_memory(d: &Device) -> Result<()> {
    let (a, b) = (leaf(&[1.; 3], 3, d)?, leaf(&[1.; 3], 3, d)?);
    let c = (&a + &b)?;
    (&c + &a)?.sum_all()?.backward()?;
    assert_eq!((gradient(&a)?, gradient(&b)?), (vec![2.; 3], vec![1.; 3]));
    a.grad()?.unwrap().zero_()?;
    assert_eq!((gradient(&a)?, gradient(&b)?), (vec![0.; 3], vec![1.; 3]));
    // A sum hands the same gradient to both of its operands.
    let (a, b) = (leaf(&[1.; 3], 3, d)?, leaf(&[1.; 3], 3, d)?);
    let upstream = f32s(&[1., 2., 3.], 3, d)?;
    (&a + &b)?.backward_with(&upstream)?;
    a.grad()?.unwrap().mul_(&f32s(&[10.], (), d)?)?;
    assert_eq!((gradient(&a)?, gradient(&b)?, read(&upstream)?), (vec![10., 20., 30.], vec![1., 2., 3.], vec![1., 2., 3.]));
    Ok(())
}

fn broadcast_operands_get_the_known_gradients(d: &Device) -> Result<()> {
    let x = f32s(&[1., 2., 3., 4., 5., 6.], (2, 3), d)?;
    let (w, b) = (leaf(&[1., 0., -1.], (3, 1), d)?, leaf(&[10., 20., 30.], (1, 3), d)?);
    let loss = ((x.matmul(&w)? + &b)? - f32s(&[1., 2.], (2, 1), d)?)?.square()?.sum_all()?;
    assert_eq!(read(&loss)?, [2035.]);
    loss.backward()?;
    assert_eq!((gradient(&w)?, gradient(&b)?), (vec![486., 684., 882.], vec![26., 66., 106.]));
    assert_eq!(b.grad()?.unwrap().dims(), [1, 3]);
    Ok(())
}

fn an_expanded_upstream_is_as_good_as_a_whole_one(d: &Device) -> Result<()> {
    type F = fn(&Tensor) -> Result<Tensor>;
    let ops: [F; 6] = [
        |x| x.matmul(&x.t()?),
        |x| x.layer_norm(None, None, 1e-5),
        |x| x.softmax(0),
        |x| x.gelu(),
        |x| x.dropout(0.0)?.index_select(0, &Tensor::from_slice(&[1i64, 1], 2, x.device())?),
        |x| x.linear(&x.narrow(0, 0, 2)?, None),
    ];
    for op in ops {
        let values = numbers(64 * 5, 1);
        let (a, b) = (leaf(&values, (64, 5), d)?, leaf(&values, (64, 5), d)?);
        op(&a)?.sum_all()?.backward()?;
        let y = op(&b)?;
        y.backward_with(&y.ones_like()?)?;
        assert_eq!(gradient(&a)?, gradient(&b)?);
    }
    Ok(())
}

fn the_branch_not_taken_gets_no_gradient(d: &Device) -> Result<()> {
    let x = leaf(&[16., 0.], 2, d)?;
    let y = x.eq(0.0)?.where_cond(&(&x / 2.0)?, &(x.sqrt()? + 1.0)?)?;
    y.sum_all()?.backward()?;
    assert_eq!((read(&y)?, gradient(&x)?), (vec![5., 0.], vec![0.125, 0.5]));
    let x = leaf(&[0., 2., 3.], 3, d)?;
    x.gt(2.0)?.where_cond(&(x.log()? / std::f64::consts::LN_2)?, &(&x * 2.0)?)?.sum_all()?.backward()?;
    each_close(&gradient(&x)?, &[2., 2., 0.480898347], 1e-6);
    let x = leaf(&[-1., -4.], 2, d)?;
    x.gt(0.0)?.where_cond(&x.sqrt()?, &x)?.sum_all()?.backward()?;
    assert_eq!(gradient(&x)?, [1., 1.]);
    let x = leaf(&[0., f64::INFINITY], 2, d)?;
    x.lt(1.0)?.where_cond(&x.cos()?, &x.zeros_like()?)?.sum_all()?.backward()?;
    assert_eq!(gradient(&x)?, [0., 0.]);
    Ok(())
}

fn ties_share_the_gradient(d: &Device) -> Result<()> {
    let (x, y) = (leaf(&[1., 2.], 2, d)?, leaf(&[1., 3.], 2, d)?);
    x.maximum(&y)?.sum_all()?.backward()?;
    assert_eq!((gradient(&x)?, gradient(&y)?), (vec![0.5, 0.], vec![0.5, 1.]));
    let x = leaf(&[3., 3., 1.], 3, d)?;
    x.max_all()?.backward()?;
    assert_eq!(gradient(&x)?, [0.5, 0.5, 0.]);
    let x = leaf(&[3., 3., 1.], 3, d)?;
    x.max(0)?.backward()?;
    assert_eq!(gradient(&x)?, [1., 0., 0.]);
    let x = leaf(&[0., 0.], 2, d)?;
    (x.relu()? + x.abs()?)?.sum_all()?.backward()?;
    assert_eq!(gradient(&x)?, [0., 0.]);
    Ok(())
}

fn powers_at_their_kinks(d: &Device) -> Result<()> {
    let x = leaf(&[1.], 1, d)?;
    let y = (&x - 1.0)?.powf(0.0)?.sqrt()?;
    y.sum_all()?.backward()?;
    assert_eq!((read(&y)?, gradient(&x)?), (vec![1.], vec![0.]));
    // y = x / |x|_1
    let x = leaf(&[0., 0., 0., 0., 0.1996], 5, d)?;
    (&x / x.abs()?.sum_all()?)?.sum_all()?.backward()?;
    let found = gradient(&x)?;
    each_close(&found[..4], &[5.01002004; 4], 1e-6);
    assert!(found[4].abs() < 1e-5, "{found:?}");
    Ok(())
}

fn changes_in_place_are_refused_while_gradients_are_on(d: &Device) -> Result<()> {
    let source = leaf(&[1., 2.], 2, d)?;
    let a = source.copy()?;
    let changed = a.narrow(0, 0, 1)?.copy_(&a.narrow(0, 1, 1)?.sin()?);
    assert!(matches!(changed, Err(Error::Autograd(_))));
    let view = no_grad(|| source.narrow(0, 0, 1))?;
    assert!(matches!(view.zero_(), Err(Error::Autograd(_))) && matches!(source.zero_(), Err(Error::Autograd(_))));
    let version = source.storage().version();
    no_grad(|| view.fill_(5))?;
    assert_eq!((read(&source)?, source.storage().version()), (vec![5., 2.], version + 1));
    source.square()?.sum_all()?.backward()?;
    assert_eq!(gradient(&source)?, [10., 4.]);
    Ok(())
}

fn a_saved_tensor_changed_in_place_is_an_error_that_names_both_ops(d: &Device) -> Result<()> {
    let (x, w) = (f32s(&[1., 2.], 2, d)?, leaf(&[3., 4.], 2, d)?);
    let loss = (&x * &w)?.sum_all()?;
    x.add_(&x)?;
    let e = loss.backward().unwrap_err();
    assert!(matches!(e, Error::SavedChanged { saved_by: "mul", changed_by: "add_", .. }), "{e}");
    let text = e.to_string();
    assert!(text.contains("mul") && text.contains("add_") && text.contains("[2]"), "{text}");
    // What saved nothing does not mind.
    let loss = (&x + &w)?.sum_all()?;
    x.zero_()?;
    loss.backward()
}

fn a_graph_is_walked_once_unless_retained(d: &Device) -> Result<()> {
    let x = leaf(&[1., 2.], 2, d)?;
    let loss = x.exp()?.square()?.sum_all()?;
    loss.backward_retain()?;
    let once = gradient(&x)?;
    loss.backward()?;
    close(&gradient(&x)?, &once.iter().map(|g| 2.0 * g).collect::<Vec<_>>(), 1e-6, "two backwards");
    let e = loss.backward().unwrap_err().to_string();
    assert!(e.contains("second time") && e.contains("autograd.rs"), "{e}");
    assert!(matches!(x.detach().sum_all()?.backward(), Err(Error::Autograd(_))));
    assert!(matches!(x.exp()?.backward(), Err(Error::Shape { op: "backward", .. })));
    Ok(())
}

fn a_failed_backward_marks_gradients_partial(d: &Device) -> Result<()> {
    let (early, late) = (leaf(&[1.], 1, d)?.named_leaf("early")?, leaf(&[1.], 1, d)?.named_leaf("late")?);
    // The walk meets `late` first, then fails.
    let loss = (apply(Fails, &[&early.exp()?])? + &late)?.sum_all()?;
    assert_eq!(loss.backward().unwrap_err().to_string(), "no way back");
    let e = late.grad().unwrap_err().to_string();
    assert!(e.contains("late") && e.contains("partial"), "{e}");
    assert!(early.grad()?.is_none());
    let History::Leaf(inner) = late.history() else { unreachable!() };
    inner.set_grad(None)?;
    late.square()?.sum_all()?.backward()?;
    assert_eq!(gradient(&late)?, [2.]);
    Ok(())
}

fn grad_touches_no_leaf(d: &Device) -> Result<()> {
    let (x, w) = (leaf(&[1., 2.], 2, d)?, leaf(&[3., 4.], 2, d)?);
    let h = (&x * &w)?;
    let found = grad(&h.square()?.sum_all()?, &[&h, &w])?;
    assert_eq!((read(&found[0])?, read(&found[1])?), (vec![6., 16.], vec![6., 32.]));
    assert!(x.grad()?.is_none() && w.grad()?.is_none());
    assert!(grad(&x.sum_all()?, &[&w]).is_err());
    Ok(())
}

fn nodes_know_the_line_that_recorded_them(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let (linear, norm) = (Linear::new(4, 4, &params.at("a"))?, LayerNorm::new(4, &params.at("b"))?);
    let x = leaf(&numbers(16, 1), (4, 4), d)?;
    let h = norm.forward(&linear.forward(&x)?.gelu()?.dropout(0.1)?)?;
    let h = Tensor::stack(&[(&h * 2.0)?, h.t()?, h.softmax(0)?, h.maximum(&x)?], 0)?;
    let h = Tensor::cat(&h.split(&[1, 3], 0)?, 0)?.matmul(&x)?.mean([0])?.masked_fill(&x.gt(0.0)?, 0.5)?;
    let h = (h.max(0)? + h.amin([1])?)?.index_select(0, &Tensor::zeros(2, DType::I64, d)?)?;
    let half = h.to_dtype(DType::F16)?;
    let y = (autocast(DType::F16, || half.mse_loss(&half.relu()?))?
        + h.unsqueeze(0)?.cross_entropy(&Tensor::zeros(1, DType::I64, d)?)?)?;
    let (mut nodes, mut seen, mut elsewhere) = (vec![], 0, vec![]);
    nodes.extend(y.node().map(|(node, _)| node.clone()));
    while let Some(node) = nodes.pop() {
        seen += 1;
        if !node.location().file().ends_with("autograd.rs") {
            elsewhere.push(format!("{} at {}", node.name(), node.location()));
        }
        nodes.extend(node.edges().iter().filter_map(|e| if let Edge::Node(node, _) = e { Some(node.clone()) } else { None }));
    }
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    assert!(seen > 30, "{seen}");
    Ok(())
}

/// `y = x^3`.
struct Cube;

impl Op for Cube {
    fn name(&self) -> &'static str {
        "cube"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(inputs[0].square()?.mul(&inputs[0])?.detach().into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[0])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let dx = ctx.only(grads)?.mul(&(saved.take(0)?.square()? * 3.0)?)?;
        Ok(InputGrads::from_iter([Some(dx)]))
    }
}

fn an_op_of_the_users_own_is_an_op_like_any(d: &Device) -> Result<()> {
    let x = leaf(&[1., -2., 3.], 3, d)?;
    let y = apply(Cube, &[&x])?;
    (&y * 2.0)?.sum_all()?.backward()?;
    assert_eq!((read(&y)?, gradient(&x)?), (vec![1., -8., 27.], vec![6., 24., 54.]));
    Ok(())
}

fn operands_without_gradients_get_no_buffers(d: &Device) -> Result<()> {
    let n = 256;
    let (x, w) = (Tensor::ones((n, n), DType::F32, d)?, Tensor::ones((n, 1), DType::F32, d)?.requires_grad()?);
    let loss = x.matmul(&w)?.sum_all()?;
    let before = live(d);
    d.reset_peak_memory_stats();
    let held = d.memory_stats();
    loss.backward()?;
    let peak = d.memory_stats();
    let workspaces = peak.category(Category::Workspace).peak - held.category(Category::Workspace).current;
    // Column, its transpose for the product, and the gradient of the weight; a gradient of `x` alone would take 256 KiB.
    let grown = peak.allocated.peak - held.allocated.current - workspaces.min(peak.allocated.peak - held.allocated.current);
    assert!(grown < n * n, "{grown}");
    assert!(live(d) - before <= 2 * n * 4);
    Ok(())
}

fn activations_go_as_backward_passes(d: &Device) -> Result<()> {
    let n = 1 << 16;
    let x = Tensor::full(0.5, n, DType::F32, d)?.requires_grad()?;
    let mut y = x.exp()?;
    for _ in 0..15 {
        y = y.affine(0.1, 0.0)?.exp()?;
    }
    let loss = y.sum_all()?;
    drop(y);
    let saved = live(d);
    d.reset_peak_memory_stats();
    loss.backward()?;
    // 16 results were saved; on the way back two gradients exist at a time, while the saved results go one by one.
    let grown = d.memory_stats().allocated.peak - saved - d.memory_stats().category(kiln::Category::Workspace).current;
    assert!(grown <= 3 * n * 4, "{grown}");
    assert!(live(d) <= saved - 14 * n * 4);
    Ok(())
}
