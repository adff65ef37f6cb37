//! Parameters: names, order, initial values.

use kiln_alloc::Category;
use kiln_autograd::Backward;
use kiln_nn::{Embedding, GruCell, Init, LayerNorm, Linear, Params, RnnCell};
use kiln_tensor::{DType, Device, Result};

#[test]
fn names_are_those_of_a_state_dict_in_order_of_creation() -> Result<()> {
    let params = Params::new(&Device::cpu());
    Linear::new(4, 3, &params.at("fc2"))?;
    LayerNorm::new(3, &params.at("blocks.0").at("norm"))?;
    RnnCell::new(2, 3, &params.at("cell"))?;
    let names: Vec<String> = params.named().into_iter().map(|(name, _)| name).collect();
    let cell = ["cell.weight_ih", "cell.weight_hh", "cell.bias_ih", "cell.bias_hh"];
    assert_eq!(names, [&["fc2.weight", "fc2.bias", "blocks.0.norm.weight", "blocks.0.norm.bias"][..], &cell].concat());
    assert_eq!(params.at("blocks").trainable().len(), 2);
    assert_eq!(params.at("block").trainable().len(), 0);
    assert_eq!(params.parameter_count(), 15 + 6 + 6 + 9 + 6);
    Ok(())
}

#[test]
fn a_name_that_is_taken_is_an_error() -> Result<()> {
    let params = Params::new(&Device::cpu());
    Linear::new(1, 1, &params.at("fc"))?;
    let e = Linear::new(1, 1, &params.at("fc")).unwrap_err().to_string();
    assert!(e.contains("fc.weight"), "{e}");
    assert!(params.create("", 1, Init::Zeros).is_err());
    Ok(())
}

#[test]
fn initial_values_are_bounded_as_in_pytorch() -> Result<()> {
    let params = Params::new(&Device::cpu());
    let values = |p: &kiln_nn::Parameter| p.to_vec::<f32>();
    let within = |values: Vec<f32>, bound: f32| {
        let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        assert!(largest <= bound && largest > 0.8 * bound, "{largest} {bound}");
    };
    let linear = Linear::new(100, 50, &params.at("linear"))?;
    within(values(linear.weight())?, 0.1);
    within(values(linear.bias().unwrap())?, 0.1);
    GruCell::new(3, 16, &params.at("gru"))?;
    for p in params.at("gru").trainable() {
        within(values(&p)?, 0.25);
    }
    let rows = values(Embedding::new(100, 100, &params.at("embedding"))?.weight())?;
    let variance = rows.iter().map(|v| v * v).sum::<f32>() / 1e4;
    assert!((variance - 1.0).abs() < 0.05, "{variance}");
    let norm = LayerNorm::new(3, &params.at("norm"))?;
    assert_eq!((values(norm.weight())?, values(norm.bias())?), (vec![1.0; 3], vec![0.0; 3]));
    Ok(())
}

#[test]
fn the_seed_decides_the_values() -> Result<()> {
    let device = Device::dry_run("1GiB")?;
    let state = |seed| {
        device.manual_seed(seed);
        Linear::new(3, 3, &Params::new(&device)).map(|_| device.generator_state())
    };
    assert_eq!(state(1)?, state(1)?);
    Ok(())
}

#[test]
fn parameters_and_gradients_are_counted_as_such() -> Result<()> {
    let device = Device::dry_run("1GiB")?;
    let params = Params::new(&device);
    let p = params.create("p", 1000, Init::Ones)?;
    assert_eq!(p.storage().category(), Category::Parameters);
    p.square()?.sum_all()?.backward()?;
    assert_eq!(p.grad()?.unwrap().storage().category(), Category::Gradients);
    p.zero_grad();
    assert!(p.grad()?.is_none());
    Ok(())
}

#[test]
fn a_gradient_that_was_set_is_a_copy() -> Result<()> {
    let params = Params::new(&Device::cpu());
    let (a, b) = (params.create("a", 2, Init::Ones)?, params.create("b", 2, Init::Ones)?);
    a.square()?.sum_all()?.backward()?;
    b.set_grad(&a.grad()?.unwrap())?;
    b.sum_all()?.backward()?;
    assert_eq!(a.grad()?.unwrap().to_vec::<f32>()?, [2.0; 2]);
    assert_eq!(b.grad()?.unwrap().to_vec::<f32>()?, [3.0; 2]);
    assert!(b.set_grad(&a.to_dtype(DType::F64)?).is_err());
    Ok(())
}
