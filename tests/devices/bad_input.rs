//! Bad input is a typed error whose text names the op and what it was given; nothing panics and nothing stays allocated.

use crate::support::{cases, live, read};
use kiln::kernels::KernelError;
use kiln::nn::{Dropout, Params};
use kiln::{Backward, DType, Device, Error, IndexOp, Result, Tensor};

cases![
    shapes_that_do_not_fit,
    types_that_do_not_fit,
    operands_on_different_devices,
    arguments_out_of_range,
    an_index_out_of_range_names_op_and_value,
    devices_that_do_not_exist,
];

/// An error whose text has all the parts, and which left nothing allocated.
#[track_caller]
fn refused<T>(result: impl FnOnce() -> Result<T>, d: &Device, is_kind: fn(&Error) -> bool, parts: &[&str]) {
    let before = live(d);
    let Err(e) = result() else { panic!("no error, but one with {parts:?} was expected") };
    assert!(is_kind(&e), "{e:?}");
    let text = e.to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "{part:?} is missing: {text}"));
    assert_eq!(live(d), before, "bytes after: {text}");
}

fn shapes_that_do_not_fit(d: &Device) -> Result<()> {
    let ones = |dims: &[usize]| Tensor::ones(dims, DType::F32, d);
    let (a, b, v) = (ones(&[2, 3])?, ones(&[4, 5])?, ones(&[3])?);
    let ids = Tensor::zeros((2, 2), DType::I64, d)?;
    let shape = |e: &Error| matches!(e, Error::Shape { .. });
    refused(|| a.matmul(&b), d, shape, &["matmul", "[2, 3]", "[4, 5]"]);
    refused(|| ones(&[])?.matmul(&a), d, shape, &["matmul", "[]", "[2, 3]"]);
    refused(|| ones(&[2, 2, 3])?.matmul(&ones(&[3, 3, 2])?), d, shape, &["matmul", "[2, 2, 3]", "[3, 3, 2]"]);
    refused(|| &a + &b, d, shape, &["add", "[2, 3]", "[4, 5]"]);
    refused(|| a.where_cond(&a, &a), d, |e| matches!(e, Error::DType { .. }), &["where_cond", "f32"]);
    refused(|| a.cross_entropy(&ids), d, shape, &["cross_entropy", "[2, 2]", "[2, 3]"]);
    refused(|| a.linear(&b, None), d, shape, &["linear", "[2, 3]", "[4, 5]"]);
    refused(|| a.linear(&ones(&[4, 3])?, Some(&v)), d, shape, &["linear", "[2, 3]", "[4, 3]", "[3]"]);
    refused(|| a.layer_norm(Some(&b), None, 1e-5), d, shape, &["layer_norm", "[2, 3]", "[4, 5]"]);
    refused(|| a.mse_loss(&v), d, shape, &["mse_loss", "[2, 3]", "[3]"]);
    refused(|| Tensor::cat(&[&a, &b], 0), d, shape, &["cat", "[2, 3]", "[4, 5]"]);
    refused(|| Tensor::stack(&[&a, &b], 0), d, shape, &["stack", "[2, 3]", "[4, 5]"]);
    refused(|| a.reshape((2, 2)), d, shape, &["reshape", "[2, 3]", "[2, 2]"]);
    refused(|| a.expand((3, 3)), d, shape, &["expand", "[2, 3]", "[3, 3]"]);
    refused(|| a.narrow(1, 2, 2), d, shape, &["narrow", "[2, 3]"]);
    refused(|| a.narrow(1, usize::MAX, 2), d, shape, &["narrow", "[2, 3]"]);
    refused(|| a.i((0, 3)), d, shape, &["index", "3", "[2, 3]"]);
    refused(|| a.sum([2]), d, shape, &["sum", "2", "[2, 3]"]);
    refused(|| a.sum([0, 0]), d, shape, &["sum", "[2, 3]"]);
    refused(|| a.softmax(-3), d, shape, &["softmax", "-3", "[2, 3]"]);
    refused(|| a.permute([0, 0]), d, shape, &["permute", "[2, 3]"]);
    refused(|| a.squeeze(0), d, shape, &["squeeze", "[2, 3]"]);
    refused(|| v.embedding(&ids), d, shape, &["embedding", "[3]"]);
    refused(|| a.index_select(0, &ids), d, shape, &["index_select", "[2, 2]"]);
    refused(|| ones(&[0])?.max_all(), d, shape, &["max", "[0]"]);
    refused(|| Tensor::from_vec(vec![1f32; 5], (2, 3), d), d, shape, &["from_slice", "[2, 3]", "5"]);
    refused(|| a.to_scalar::<f32>(), d, shape, &["to_scalar", "[2, 3]"]);
    refused(|| a.to_vec1::<f32>(), d, shape, &["[2, 3]"]);
    refused(|| a.requires_grad()?.exp()?.backward(), d, shape, &["backward", "[2, 3]"]);
    refused(|| Tensor::zeros(vec![1; 9], DType::F32, d), d, shape, &["zeros", "9"]);
    refused(|| a.split(&[1, 1], 1), d, shape, &["split", "[2, 3]"]);
    Ok(())
}

fn types_that_do_not_fit(d: &Device) -> Result<()> {
    let (x, long) = (Tensor::ones((2, 2), DType::F32, d)?, Tensor::ones((2, 2), DType::I64, d)?);
    let half = x.to_dtype(DType::F16)?;
    let dtype = |e: &Error| matches!(e, Error::DType { .. });
    refused(|| &x + &half, d, dtype, &["add", "f32", "f16"]);
    refused(|| x.matmul(&half), d, dtype, &["matmul", "f32", "f16"]);
    refused(|| long.matmul(&long), d, dtype, &["matmul", "i64"]);
    refused(|| x.linear(&half, None), d, dtype, &["linear", "f32", "f16"]);
    refused(|| x.eq(&long), d, dtype, &["eq", "f32", "i64"]);
    refused(|| long.exp(), d, dtype, &["exp", "i64"]);
    refused(|| long.div(&long), d, dtype, &["div", "i64"]);
    refused(|| long.softmax(0), d, dtype, &["softmax", "i64"]);
    refused(|| long.dropout(0.5), d, dtype, &["dropout", "i64"]);
    refused(|| long.mean_all(), d, dtype, &["mean", "i64"]);
    refused(|| long.layer_norm(None, None, 1e-5), d, dtype, &["layer_norm", "i64"]);
    refused(|| Tensor::cat(&[&x, &half], 0), d, dtype, &["cat", "f32", "f16"]);
    refused(|| x.embedding(&x), d, dtype, &["embedding", "f32"]);
    refused(|| x.cross_entropy(&x.narrow(0, 0, 1)?.squeeze(0)?), d, dtype, &["cross_entropy", "f32"]);
    refused(|| long.requires_grad(), d, dtype, &["requires_grad", "i64"]);
    refused(|| Tensor::randn(3, DType::I64, d), d, dtype, &["randn", "i64"]);
    refused(|| x.to_vec::<f64>(), d, dtype, &["to_vec", "f32", "f64"]);
    refused(|| x.add_(&half), d, dtype, &["add_", "f32", "f16"]);
    Ok(())
}

fn operands_on_different_devices(d: &Device) -> Result<()> {
    let dry = Device::dry_run("64MiB")?;
    let (here, there) = (Tensor::ones((2, 2), DType::F32, d)?, Tensor::ones((2, 2), DType::F32, &dry)?);
    let device = |e: &Error| matches!(e, Error::Device { .. });
    let names = [d.name(), dry.name()];
    refused(|| &here + &there, d, device, &["add", names[0], names[1]]);
    refused(|| there.matmul(&here), d, device, &["matmul", names[0], names[1]]);
    refused(|| Tensor::cat(&[&here, &there], 0), d, device, &["cat", names[0], names[1]]);
    refused(|| here.linear(&here, Some(&there.narrow(0, 0, 1)?.squeeze(0)?)), d, device, &["linear", names[1]]);
    refused(|| here.add_(&there), d, device, &["add_", names[0], names[1]]);
    refused(|| here.exp()?.mse_loss(&there), d, device, &[names[1]]);
    Ok(())
}

fn arguments_out_of_range(d: &Device) -> Result<()> {
    let x = Tensor::ones((2, 2), DType::F32, d)?;
    let argument = |e: &Error| matches!(e, Error::Argument { .. });
    refused(|| x.dropout(1.5), d, argument, &["dropout", "1.5"]);
    refused(|| Dropout::new(f64::NAN), d, argument, &["dropout"]);
    refused(|| x.layer_norm(None, None, -1.0), d, argument, &["layer_norm", "-1"]);
    refused(|| Tensor::arange(0, 5, 0, DType::I64, d), d, argument, &["arange"]);
    refused(|| Tensor::randint(3, 3, 5, d), d, argument, &["randint", "3"]);
    refused(|| x.to_dtype(DType::U8)?.eq(300), d, argument, &["eq", "300", "u8"]);
    refused(|| x.to_dtype(DType::U8)?.fill_(-1), d, argument, &["fill_", "-1", "u8"]);
    refused(|| Tensor::cat::<Tensor>(&[], 0), d, argument, &["cat"]);
    refused(|| Params::new(d).create("", 1, kiln::nn::Init::Zeros), d, argument, &["name"]);
    Ok(())
}

fn an_index_out_of_range_names_op_and_value(d: &Device) -> Result<()> {
    let index = |e: &Error| matches!(e, Error::Kernel { source: KernelError::Index { .. }, .. });
    let table = Tensor::ones((3, 4), DType::F32, d)?;
    let ids = |value: i64| Tensor::from_slice(&[0, value, 1], 3, d);
    // On CUDA the kernel clamps, and the next read-back tells.
    for value in [-1i64, 3, i64::MAX] {
        let text = value.to_string();
        refused(|| read(&table.index_select(0, &ids(value)?)?), d, index, &["index_select", &text, "3"]);
    }
    for value in [-1i64, 4] {
        let text = value.to_string();
        refused(|| read(&table.cross_entropy(&ids(value)?)?), d, index, &["cross_entropy", &text, "4"]);
    }
    refused(
        || {
            let y = table.index_select(1, &ids(99)?);
            d.synchronize()?;
            y
        },
        d,
        index,
        &["index_select", "99"],
    );
    // The error was told once; what comes after is well.
    assert_eq!(read(&table.index_select(0, &ids(2)?)?)?, [1.0; 12]);
    Ok(())
}

fn devices_that_do_not_exist(d: &Device) -> Result<()> {
    let there = |e: &Error| matches!(e, Error::Device { .. } | Error::Alloc(_));
    refused(|| Device::cuda(99), d, there, &[]);
    refused(|| Device::from_name("cuda:99"), d, there, &[]);
    for name in ["tpu", "cuda:x", "cpu:0", "", "dry-run"] {
        refused(|| Device::from_name(name), d, there, &["unknown device", name, "cpu", "dry-run"]);
    }
    assert_eq!(Device::from_name(d.name())?, *d);
    assert_eq!(Device::from_name("cpu")?, Device::cpu());
    assert!(Device::from_name("dry-run:1GiB")?.is_dry_run());
    Ok(())
}
