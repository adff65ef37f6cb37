//! Work on one stream sees what another made, with no word from the user, also where memory was dropped and taken again meanwhile.

use crate::support::{cases, gradient, read};
use kiln::nn::{Linear, Module, Params};
use kiln::{Backward, DType, Device, Result, Tensor};

cases![
    data_goes_from_stream_to_stream_and_back,
    memory_dropped_while_another_stream_reads_it_is_not_reused_early,
    backward_follows_the_streams_of_forward,
    products_run_on_many_streams,
    a_stream_can_go_while_its_tensors_live,
];

fn rounds(d: &Device) -> usize {
    if d.is_cuda() { 200 } else { 20 }
}

fn elements(d: &Device) -> usize {
    if d.is_cuda() { 4 << 20 } else { 4 << 10 }
}

#[track_caller]
fn assert_all(t: &Tensor, value: f32) -> Result<()> {
    assert_eq!((t.min_all()?.to_scalar::<f32>()?, t.max_all()?.to_scalar::<f32>()?), (value, value));
    Ok(())
}

fn data_goes_from_stream_to_stream_and_back(d: &Device) -> Result<()> {
    let (other, n) = (d.new_stream()?, elements(d));
    assert_ne!(other.id(), d.stream().id());
    for i in 0..rounds(d) {
        let a = Tensor::full(i, n, DType::F32, d)?;
        let b = d.with_stream(&other, || a.affine(2.0, 1.0))?;
        let c = (&b + 1.0)?;
        let e = d.with_stream(&other, || &c - &a)?;
        assert_all(&e, i as f32 + 2.0)?;
    }
    Ok(())
}

fn memory_dropped_while_another_stream_reads_it_is_not_reused_early(d: &Device) -> Result<()> {
    let (other, n) = (d.new_stream()?, elements(d));
    for i in 0..rounds(d) {
        let a = Tensor::full(i, n, DType::F32, d)?;
        let sum = d.with_stream(&other, || (0..4).try_fold(a.clone(), |y, _| &y + &a))?;
        // Dropped while `other` reads it; the next tensor wants memory of the same size.
        drop(a);
        let next = Tensor::full(-1, n, DType::F32, d)?;
        assert_all(&sum, 5.0 * i as f32)?;
        // The other way round: made on `other`, read here, dropped there.
        let c = d.with_stream(&other, || Tensor::full(i, n, DType::F32, d))?;
        let twice = (&c + &c)?;
        drop(c);
        let after = d.with_stream(&other, || Tensor::full(-2, n, DType::F32, d))?;
        assert_all(&twice, 2.0 * i as f32)?;
        assert_all(&next, -1.0)?;
        assert_all(&after, -2.0)?;
    }
    Ok(())
}

fn backward_follows_the_streams_of_forward(d: &Device) -> Result<()> {
    let (other, n) = (d.new_stream()?, 1 << 12);
    for _ in 0..rounds(d) {
        let x = Tensor::full(3, n, DType::F32, d)?.requires_grad()?;
        let y = d.with_stream(&other, || x.square())?;
        let loss = (&y * &x)?.sum_all()?;
        drop(y);
        loss.backward()?;
        assert!(gradient(&x)?.iter().all(|&g| g == 27.0));
    }
    Ok(())
}

fn products_run_on_many_streams(d: &Device) -> Result<()> {
    let layer = Linear::no_bias(64, 64, &Params::new(d))?;
    let x = Tensor::randn((64, 64), DType::F32, d)?;
    let wanted = read(&layer.forward(&x)?)?;
    // More streams than the library keeps workspaces for.
    for _ in 0..12 {
        let stream = d.new_stream()?;
        let (a, b) = (d.with_stream(&stream, || layer.forward(&x))?, layer.forward(&x)?);
        assert!(read(&a)? == wanted && read(&b)? == wanted);
    }
    d.empty_cache()
}

fn a_stream_can_go_while_its_tensors_live(d: &Device) -> Result<()> {
    for i in 0..20 {
        let stream = d.new_stream()?;
        let x = d.with_stream(&stream, || Tensor::full(i, 1 << 12, DType::F32, d)?.affine(1.0, 1.0))?;
        drop(stream);
        assert_all(&x, i as f32 + 1.0)?;
    }
    Ok(())
}
