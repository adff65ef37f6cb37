//! Every byte is reported at the line of the program that asked for it.

use crate::memory::Limit;
use crate::support::cases;
use kiln::nn::{AdamW, GruCell, Linear, Lstm, Module, Optimizer, Params, Relu, Sequential, checkpoint};
use kiln::{Backward, DType, Device, Error, Result, Tensor, autocast};

cases![
    tensors_belong_to_the_line_that_made_them,
    results_of_ops_belong_to_the_line_of_the_call,
    layers_and_optimizers_belong_to_the_lines_that_made_them,
    layers_in_a_sequence_belong_to_the_line_that_put_them_there,
    a_model_in_a_sequence_belongs_to_its_own_lines,
    recurrent_layers_belong_to_the_line_of_the_call,
    out_of_memory_names_the_lines,
];

/// Live bytes of a line of this file.
fn at(d: &Device, line: u32) -> usize {
    let name = format!("{}:{line}", file!());
    d.memory_by_line().into_iter().find(|(at, _)| *at == name).map_or(0, |(_, bytes)| bytes)
}

/// That `f` leaves no live bytes at lines of Kiln's own, besides those there were.
fn only_lines_of_the_program<R>(d: &Device, f: impl FnOnce() -> Result<R>) -> Result<R> {
    // Scratch memory that libraries hold has no line of the program's.
    let foreign = || {
        let lines = d.memory_by_line().into_iter();
        lines.filter(|(at, _)| !at.starts_with(file!()) && !at.contains("workspace.rs")).collect::<Vec<_>>()
    };
    let before = foreign();
    let result = f()?;
    assert_eq!(foreign(), before);
    Ok(result)
}

fn tensors_belong_to_the_line_that_made_them(d: &Device) -> Result<()> {
    let zeros = Tensor::zeros(1000, DType::F32, d)?;
    assert_eq!(at(d, line!() - 1), 4000);
    let random = Tensor::randn(100, DType::F32, d)?;
    assert_eq!(at(d, line!() - 1), 400);
    let given = Tensor::from_vec(vec![1f32; 100], 100, d)?;
    assert_eq!(at(d, line!() - 1), 400);
    let counted = Tensor::arange(0, 100, 1, DType::F32, d)?;
    assert_eq!(at(d, line!() - 1), 400);
    let like = zeros.ones_like()?;
    assert_eq!(at(d, line!() - 1), 4000);
    let line = line!() - 2;
    drop((zeros, random, given, counted, like));
    assert_eq!(at(d, line), 0);
    Ok(())
}

fn results_of_ops_belong_to_the_line_of_the_call(d: &Device) -> Result<()> {
    let x = Tensor::ones((10, 10), DType::F32, d)?.requires_grad()?;
    let y = only_lines_of_the_program(d, || {
        let y = x.exp()?;
        assert_eq!(at(d, line!() - 1), 400);
        let y = (&y + 1.0)?.softmax(-1)?;
        assert_eq!(at(d, line!() - 1), 400);
        autocast(DType::BF16, || y.matmul(&x)?.square())
    })?;
    only_lines_of_the_program(d, || y.to_dtype(DType::F32)?.sum_all()?.backward())?;
    assert!(x.grad()?.is_some());
    Ok(())
}

fn layers_and_optimizers_belong_to_the_lines_that_made_them(d: &Device) -> Result<()> {
    let params = Params::new(d);
    only_lines_of_the_program(d, || {
        let layer = Linear::new(10, 10, &params)?;
        assert_eq!(at(d, line!() - 1), 440);
        let mut adam = AdamW::new(params.trainable(), Default::default())?;
        let made = line!() - 1;
        layer.forward(&Tensor::ones((1, 10), DType::F32, d)?)?.sum_all()?.backward()?;
        adam.step()?;
        assert_eq!(at(d, made), 2 * 440 + 16);
        let cell = GruCell::new(10, 10, &params.at("cell"))?;
        assert_eq!(at(d, line!() - 1), 2 * (1200 + 120));
        Ok((layer, adam, cell))
    })?;
    Ok(())
}

fn layers_in_a_sequence_belong_to_the_line_that_put_them_there(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let first = Linear::new(10, 20, &params.at(0))?;
    let model = Sequential::new()
        .then(first) // 8 rows of 20
        .then(Relu);
    let (linear, relu) = (line!() - 2, line!() - 1);
    let x = Tensor::ones((8, 10), DType::F32, d)?;
    only_lines_of_the_program(d, || {
        let y = model.forward(&x)?;
        assert_eq!((at(d, linear), at(d, relu)), (0, 640), "the relu's output is what is kept");
        let z = checkpoint(&model, &x)?;
        assert_eq!(at(d, relu), 2 * 640);
        (y + z)?.sum_all()?.backward()
    })
}

/// A module of a program's own.
#[derive(Clone)]
struct Block;

/// The line in it.
const INSIDE: u32 = line!() + 4;

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.exp()
    }
}

fn a_model_in_a_sequence_belongs_to_its_own_lines(d: &Device) -> Result<()> {
    let model = Sequential::new().then(Block);
    let y = model.forward(&Tensor::ones(100, DType::F32, d)?)?;
    assert_eq!(at(d, INSIDE), 400);
    drop(y);
    Ok(())
}

fn recurrent_layers_belong_to_the_line_of_the_call(d: &Device) -> Result<()> {
    let params = Params::new(d);
    let x = Tensor::ones((20, 2, 4), DType::F32, d)?;
    only_lines_of_the_program(d, || {
        let lstm = Lstm::new(4, 8, &params)?;
        let (y, state) = lstm.run(&x, None)?;
        y.sum_all()?.backward()?;
        Ok((lstm, state))
    })?;
    Ok(())
}

fn out_of_memory_names_the_lines(d: &Device) -> Result<()> {
    let held = Tensor::zeros(4 << 20, DType::U8, d)?;
    let line = line!() - 1;
    let _limit = Limit::above_now(d, 8 << 20)?;
    let e = Tensor::zeros(64 << 20, DType::U8, d).unwrap_err();
    let text = e.to_string();
    let Error::OutOfMemory { report, .. } = e else { panic!("{text}") };
    assert_eq!(report.top_sites[0], (format!("{}:{line}", file!()), 4 << 20));
    assert!(text.contains(&report.top_sites[0].0), "{text}");
    let Err(Error::OutOfMemory { report, .. }) = d.reserve(64 << 20) else { panic!("reserved more than the limit") };
    assert_eq!(report.site, format!("{}:{}", file!(), line!() - 1));
    drop(held);
    Ok(())
}
