//! What forward and training leave behind: nothing. Nodes are counted for the whole process, so these tests take turns.

use kiln_autograd::{Backward, checkpoint_fn, no_grad};
use kiln_tensor::tape::{History, Node};
use kiln_tensor::{DType, Device, Result, Tensor};
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn allocated(device: &Device) -> usize {
    device.memory_stats().allocated.current
}

#[test]
fn forwards_without_backward_leave_nothing() -> Result<()> {
    let _turn = turn();
    let device = Device::dry_run("1GiB")?;
    let w = Tensor::zeros((4, 4), DType::F32, &device)?.requires_grad()?;
    let x = Tensor::zeros((2, 4), DType::F32, &device)?;
    let forward = || {
        let (v, h) = (w.clone(), x.linear(&w, None)?.gelu()?);
        checkpoint_fn(&[&h], move |xs| xs[0].matmul(&v)?.softmax(-1))?.sum_all()
    };
    forward()?;
    let (nodes, bytes) = (Node::live_count(), allocated(&device));
    for _ in 0..10_000 {
        forward()?;
        assert_eq!((Node::live_count(), allocated(&device)), (nodes, bytes));
    }
    Ok(())
}

#[test]
fn steps_of_training_leave_nothing() -> Result<()> {
    let _turn = turn();
    let device = Device::dry_run("1GiB")?;
    let w = Tensor::zeros((4, 4), DType::F32, &device)?.requires_grad()?;
    let x = Tensor::zeros((2, 4), DType::F32, &device)?;
    let moment = Tensor::zeros((4, 4), DType::F32, &device)?;
    let step = || -> Result<()> {
        x.linear(&w, None)?.square()?.mean_all()?.backward()?;
        no_grad(|| {
            let gradient = w.grad()?.expect("a gradient").add(&w.affine(0.1, 0.0)?)?;
            moment.mul_(&Tensor::full(0.9, (), DType::F32, &device)?)?;
            moment.add_(&gradient)?;
            w.sub_(&moment)
        })?;
        let History::Leaf(leaf) = w.history() else { panic!("a leaf") };
        leaf.set_grad(None)
    };
    step()?;
    let (nodes, bytes) = (Node::live_count(), allocated(&device));
    for _ in 0..1000 {
        step()?;
        assert_eq!((Node::live_count(), allocated(&device)), (nodes, bytes));
    }
    Ok(())
}

#[test]
fn a_dropped_graph_frees_what_it_saved() -> Result<()> {
    let _turn = turn();
    let device = Device::dry_run("1GiB")?;
    let x = Tensor::zeros(1000, DType::F32, &device)?.requires_grad()?;
    let (nodes, bytes) = (Node::live_count(), allocated(&device));
    let y = x.exp()?.sin()?.exp()?;
    assert!(Node::live_count() > nodes && allocated(&device) > bytes);
    drop(y);
    assert_eq!((Node::live_count(), allocated(&device)), (nodes, bytes));
    Ok(())
}
