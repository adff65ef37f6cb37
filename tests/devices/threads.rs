//! Threads share a device: each gets what it would get alone.

use crate::support::{cases, live, numbers, read, tensor};
use kiln::nn::{AdamW, AdamWConfig, Linear, Module, Optimizer, Parameter, Relu, Sequential, checkpoint};
use kiln::{Backward, DType, Device, Result, Tensor, no_grad};

cases![
    threads_train_as_they_would_alone,
    threads_on_streams_of_their_own_train_as_they_would_alone,
    tensors_go_from_thread_to_thread
];

/// Parameters after 20 steps of a small model with weights of its own.
fn train(d: &Device, seed: usize) -> Result<Vec<f64>> {
    let parameter =
        |name: &str, dims: &[usize]| Parameter::new(name, &tensor(&numbers(dims.iter().product(), seed), dims, DType::F32, d)?);
    let params = [
        parameter("a.weight", &[32, 8])?,
        parameter("a.bias", &[32])?,
        parameter("b.weight", &[4, 32])?,
        parameter("b.bias", &[4])?,
    ];
    let layer = |i: usize| Linear::from_parts(params[i].clone(), Some(params[i + 1].clone()));
    let (trunk, head) = (Sequential::new().then(layer(0)).then(Relu), layer(2));
    let x = tensor(&numbers(16 * 8, seed + 1), (16, 8), DType::F32, d)?;
    let y = Tensor::from_vec((0..16i64).map(|i| i % 4).collect(), 16, d)?;
    let mut adam = AdamW::new(params.to_vec(), AdamWConfig { lr: 1e-2, ..Default::default() })?;
    for _ in 0..20 {
        head.forward(&checkpoint(&trunk, &x)?)?.cross_entropy(&y)?.backward()?;
        adam.step()?;
        adam.zero_grad();
    }
    let values = params.iter().map(|p| read(p)).collect::<Result<Vec<_>>>()?;
    Ok(values.concat())
}

fn four<T: Send>(f: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = (0..4).map(|i| scope.spawn(move || f(i))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn threads_train_as_they_would_alone(d: &Device) -> Result<()> {
    let alone = (0..4).map(|seed| train(d, seed)).collect::<Result<Vec<_>>>()?;
    let before = live(d);
    assert!(four(|seed| train(d, seed))? == alone);
    assert_eq!(live(d), before);
    Ok(())
}

fn threads_on_streams_of_their_own_train_as_they_would_alone(d: &Device) -> Result<()> {
    let alone = (0..4).map(|seed| train(d, seed)).collect::<Result<Vec<_>>>()?;
    let together = four(|seed| {
        let stream = d.new_stream()?;
        d.with_stream(&stream, || train(d, seed))
    })?;
    assert!(together == alone);
    Ok(())
}

fn tensors_go_from_thread_to_thread(d: &Device) -> Result<()> {
    let shared = Tensor::full(2, 4096, DType::F32, d)?.requires_grad()?;
    let losses = four(|i| (&shared * (i as f64 + 1.0))?.square()?.sum_all())?;
    // Graphs made on other threads, walked on this one, into one leaf.
    losses.iter().try_for_each(Backward::backward)?;
    assert_eq!(read(&shared.grad()?.expect("a gradient"))?, [4.0 * (1. + 4. + 9. + 16.); 4096]);
    // And the other way round.
    shared.grad()?.expect("a gradient").zero_()?;
    let losses = (0..4).map(|_| shared.square()?.sum_all()).collect::<Result<Vec<_>>>()?;
    four(|i| losses[i].backward())?;
    assert_eq!(read(&shared.grad()?.expect("a gradient"))?, [16.0; 4096]);
    no_grad(|| shared.zero_())
}
