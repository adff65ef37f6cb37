//! Modes by closure: restored on return, error and panic, and of one thread alone.

use kiln_autograd::{autocast, checkpoint_fn, enable_grad, eval, no_grad, train};
use kiln_tensor::{DType, Device, Error, Result, Tensor, modes};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn leaf() -> Result<Tensor> {
    Tensor::ones(2, DType::F32, &Device::cpu())?.requires_grad()
}

#[test]
fn history_is_off_inside_no_grad_and_on_inside_enable_grad() -> Result<()> {
    let x = leaf()?;
    let (off, on) = no_grad(|| (x.exp(), enable_grad(|| x.exp())));
    assert!(!off?.tracked() && on?.tracked() && x.exp()?.tracked());
    Ok(())
}

#[test]
fn training_and_evaluation_nest() {
    assert!(modes::is_training());
    assert!(eval(|| !modes::is_training() && train(modes::is_training) && !modes::is_training()));
    assert!(modes::is_training());
}

#[test]
fn modes_come_back_after_a_panic() -> Result<()> {
    type Scope = fn(&mut dyn FnMut());
    let scopes: [Scope; 5] = [
        |f| no_grad(f),
        |f| eval(f),
        |f| enable_grad(f),
        |f| {
            let inside = || {
                f();
                Ok(())
            };
            autocast(DType::BF16, inside).expect("bf16 is fine");
        },
        |f| modes::with_category(kiln_alloc::Category::Inputs, f),
    ];
    for scope in scopes {
        let panicked = catch_unwind(AssertUnwindSafe(|| scope(&mut || resume_unwind(Box::new("out")))));
        assert!(panicked.is_err());
        let now = modes::current();
        assert!(now.grad && now.training && now.autocast.is_none() && now.category == kiln_alloc::Category::Temporaries);
    }
    let x = leaf()?;
    let panicked = catch_unwind(AssertUnwindSafe(|| checkpoint_fn(&[&x], |_| -> Result<()> { resume_unwind(Box::new("out")) })));
    assert!(panicked.is_err());
    assert!(modes::current().saved.is_none() && modes::current().random.is_none());
    Ok(())
}

#[test]
fn modes_come_back_after_an_error_and_an_early_return() {
    let failed: Result<()> = autocast(DType::F16, || no_grad(|| Err(Error::message("out"))));
    assert!(failed.is_err() && modes::is_grad_enabled() && modes::current().autocast.is_none());
    let first = (0..3).find(|_| no_grad(|| !modes::is_grad_enabled()));
    assert!(first == Some(0) && modes::is_grad_enabled());
}

#[test]
fn modes_belong_to_a_thread() {
    no_grad(|| std::thread::scope(|s| s.spawn(|| assert!(modes::is_grad_enabled())).join().expect("no panic")));
}

#[test]
fn a_panic_in_an_op_leaves_the_walk_and_the_modes_usable() -> Result<()> {
    use kiln_autograd::Backward;
    let x = leaf()?;
    let bad = checkpoint_fn(&[&x], |xs| {
        if modes::current().stop.is_some() {
            resume_unwind(Box::new("only in recomputation"));
        }
        xs[0].exp()
    })?;
    assert!(catch_unwind(AssertUnwindSafe(|| bad.sum_all()?.backward())).is_err());
    let now = modes::current();
    assert!(now.grad && now.saved.is_none() && now.stop.is_none());
    let y = leaf()?;
    y.exp()?.sum_all()?.backward()?;
    assert!(y.grad()?.is_some());
    Ok(())
}
