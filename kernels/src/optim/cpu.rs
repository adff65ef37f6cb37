//! CPU code.

use super::{Adam, Advance, HYPER, SCALER, Sgd, Unscale, UpdateScale};
use crate::host::{Float, PARALLEL, Real, dense, dense_mut, undefined, with_float};
use crate::{Arg, DType, Result};
use rayon::prelude::*;

const PIECE: usize = PARALLEL / 4;

/// Whether a scaler found an inf or NaN in this step.
fn found_inf(scaler: &Option<Arg<'_>>, kernel: &'static str) -> Result<bool> {
    Ok(match scaler {
        Some(scaler) => dense::<f32>(scaler, SCALER, kernel)?[2] != 0.0,
        None => false,
    })
}

pub(super) fn advance(mut k: Advance<'_>) -> Result<()> {
    if !found_inf(&k.scaler, "advance")? {
        dense_mut::<f64>(&mut k.hyper, HYPER, "advance")?[1] += 1.0;
    }
    Ok(())
}

pub(super) fn sgd(k: Sgd<'_>) -> Result<()> {
    with_float!(k.p.dtype, "sgd", P => with_float!(k.g.dtype, "sgd", G => sgd_of::<P, G>(k)))
}

fn sgd_of<P: Float, G: Float>(mut k: Sgd<'_>) -> Result<()> {
    const NAME: &str = "sgd";
    if found_inf(&k.scaler, NAME)? {
        return Ok(());
    }
    let n = k.p.layout.elements();
    let hyper = dense::<f64>(&k.hyper, HYPER, NAME)?;
    let (lr, first) = (P::Acc::of(hyper[0]), hyper[1] <= 1.0);
    let (decay, momentum) = (P::Acc::of(k.weight_decay), P::Acc::of(k.momentum));
    let damped = P::Acc::of(1.0 - k.dampening);
    let p = dense_mut::<P>(&mut k.p, n, NAME)?;
    let g = dense::<G>(&k.g, n, NAME)?;
    let gradient = |p: P, g: G| P::Acc::of(g.up().wide()) + decay * p.up();
    let Some(buffer) = &mut k.momentum_buffer else {
        p.par_iter_mut().zip(g).with_min_len(PIECE).for_each(|(p, &g)| {
            *p = P::down(p.up() - lr * gradient(*p, g));
        });
        return Ok(());
    };
    let buffer = dense_mut::<P::Acc>(buffer, n, NAME)?;
    p.par_iter_mut().zip(g).zip(buffer).with_min_len(PIECE).for_each(|((p, &g), buffer)| {
        let g = gradient(*p, g);
        *buffer = if first { g } else { momentum * *buffer + damped * g };
        let step = if k.nesterov { g + momentum * *buffer } else { *buffer };
        *p = P::down(p.up() - lr * step);
    });
    Ok(())
}

pub(super) fn adam(k: Adam<'_>) -> Result<()> {
    with_float!(k.p.dtype, "adam", P => with_float!(k.g.dtype, "adam", G => adam_of::<P, G>(k)))
}

fn adam_of<P: Float, G: Float>(mut k: Adam<'_>) -> Result<()> {
    const NAME: &str = "adam";
    if found_inf(&k.scaler, NAME)? {
        return Ok(());
    }
    let n = k.p.layout.elements();
    let of = P::Acc::of;
    let &[lr, t] = dense::<f64>(&k.hyper, HYPER, NAME)? else { return Ok(()) };
    let step = of(lr / (1.0 - k.beta1.powf(t)));
    let root = of(1.0 / (1.0 - k.beta2.powf(t)).sqrt());
    let (b1, b2, a1, a2) = (of(k.beta1), of(k.beta2), of(1.0 - k.beta1), of(1.0 - k.beta2));
    let (eps, l2, keep) = match k.decoupled {
        true => (of(k.eps), of(0.0), of(1.0 - lr * k.weight_decay)),
        false => (of(k.eps), of(k.weight_decay), of(1.0)),
    };
    let p = dense_mut::<P>(&mut k.p, n, NAME)?;
    let g = dense::<G>(&k.g, n, NAME)?;
    let m = dense_mut::<P::Acc>(&mut k.m, n, NAME)?;
    let v = dense_mut::<P::Acc>(&mut k.v, n, NAME)?;
    p.par_iter_mut().zip(g).zip(m).zip(v).with_min_len(PIECE).for_each(|(((p, &g), m), v)| {
        let w = p.up();
        let g = of(g.up().wide()) + l2 * w;
        *m = b1 * *m + a1 * g;
        *v = b2 * *v + a2 * g * g;
        *p = P::down(keep * w - step * *m / (v.sqrt() * root + eps));
    });
    Ok(())
}

pub(super) fn unscale(k: Unscale<'_>) -> Result<()> {
    match k.g.dtype {
        DType::F32 => unscale_of::<f32>(k),
        DType::F64 => unscale_of::<f64>(k),
        dtype => Err(undefined("unscale", dtype)),
    }
}

fn unscale_of<T: Real>(mut k: Unscale<'_>) -> Result<()> {
    const NAME: &str = "unscale";
    let scaler = dense_mut::<f32>(&mut k.scaler, SCALER, NAME)?;
    let inverse = T::of((1.0 / scaler[0] as f64) as f32 as f64);
    let n = k.g.layout.elements();
    let g = dense_mut::<T>(&mut k.g, n, NAME)?;
    let infinite = g.par_chunks_mut(PIECE).map(|g| {
        let mut finite = true;
        for g in g {
            *g = *g * inverse;
            finite &= g.wide().is_finite();
        }
        !finite
    });
    if infinite.reduce(|| false, |a, b| a | b) {
        scaler[2] = 1.0;
    }
    Ok(())
}

pub(super) fn update_scale(mut k: UpdateScale<'_>) -> Result<()> {
    let scaler = dense_mut::<f32>(&mut k.scaler, SCALER, "update_scale")?;
    if scaler[2] != 0.0 {
        scaler[0] = (scaler[0] as f64 * k.backoff) as f32;
        scaler[1] = 0.0;
    } else {
        scaler[1] += 1.0;
        if scaler[1] >= k.interval as f32 {
            let grown = (scaler[0] as f64 * k.growth) as f32;
            if grown.is_finite() {
                scaler[0] = grown;
            }
            scaler[1] = 0.0;
        }
    }
    scaler[2] = 0.0;
    Ok(())
}
