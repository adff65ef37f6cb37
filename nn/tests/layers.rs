//! Layers and modules.

use kiln_autograd::{Backward, eval};
use kiln_nn::{Dropout, Embedding, Gelu, LayerNorm, Linear, Module, Params, Relu, Sequential, Tanh, checkpoint};
use kiln_tensor::{DType, Device, Result, Tensor};
use std::sync::Arc;

#[test]
fn a_linear_layer_multiplies_and_adds() -> Result<()> {
    let device = Device::cpu();
    let params = Params::new(&device);
    let layer = Linear::new(2, 3, &params)?;
    let x = Tensor::randn((4, 2), DType::F32, &device)?;
    let by_hand = x.matmul(&layer.weight().t()?)?.add(layer.bias().unwrap())?;
    assert_eq!(layer.forward(&x)?.to_vec::<f32>()?, by_hand.to_vec::<f32>()?);
    let bare = Linear::no_bias(2, 3, &params.at("bare"))?;
    assert_eq!(bare.forward(&Tensor::zeros((4, 5, 2), DType::F32, &device)?)?.dims(), [4, 5, 3]);
    Ok(())
}

#[test]
fn a_tied_weight_gathers_both_gradients() -> Result<()> {
    let params = Params::new(&Device::cpu());
    let embedding = Embedding::new(5, 3, &params)?;
    let head = Linear::from_parts(embedding.weight().clone(), None);
    let ids = Tensor::from_vec(vec![0i64, 1], 2, &Device::cpu())?;
    head.forward(&embedding.forward(&ids)?)?.sum_all()?.backward()?;
    assert_eq!(params.trainable().len(), 1);
    assert!(embedding.weight().grad()?.unwrap().to_vec::<f32>()?.iter().all(|g| *g != 0.0));
    Ok(())
}

#[test]
fn sequences_nest_and_hold_closures() -> Result<()> {
    let device = Device::cpu();
    let double = |x: &Tensor| x.affine(2.0, 0.0);
    let inner = Sequential(vec![Arc::new(double), Arc::new(Relu)]);
    let model = Sequential::new().then(inner).then(Tanh).then(Gelu);
    let y = model.forward(&Tensor::from_vec(vec![-1f32, 0.0], 2, &device)?)?;
    assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0]);
    assert_eq!(Sequential::new().forward(&y)?.storage().id(), y.storage().id());
    Ok(())
}

#[test]
fn dropout_does_nothing_in_evaluation_and_refuses_bad_probabilities() -> Result<()> {
    let x = Tensor::ones(100, DType::F32, &Device::cpu())?;
    let layer = Dropout::new(0.5)?;
    assert!(layer.forward(&x)?.to_vec::<f32>()?.contains(&0.0));
    assert_eq!(eval(|| layer.forward(&x))?.to_vec::<f32>()?, [1.0; 100]);
    assert!(Dropout::new(1.5).is_err() && Dropout::new(f64::NAN).is_err());
    Ok(())
}

#[test]
fn a_checkpointed_block_gives_the_same_gradients() -> Result<()> {
    let device = Device::cpu();
    let params = Params::new(&device);
    let block = Sequential::new()
        .then(Linear::new(8, 16, &params.at("a"))?)
        .then(LayerNorm::new(16, &params.at("norm"))?)
        .then(Gelu)
        .then(Linear::new(16, 8, &params.at("b"))?);
    let x = Tensor::ones((4, 8), DType::F32, &device)?;
    let run = |checkpointed: bool| -> Result<Vec<Vec<f32>>> {
        params.trainable().iter().for_each(|p| p.zero_grad());
        let y = if checkpointed { checkpoint(&block, &x)? } else { block.forward(&x)? };
        y.square()?.sum_all()?.backward()?;
        params.trainable().iter().map(|p| p.grad()?.unwrap().to_vec::<f32>()).collect()
    };
    assert_eq!(run(false)?, run(true)?);
    Ok(())
}
