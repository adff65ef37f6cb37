//! The elementwise table on the CPU: values against formulas, gradients against central differences, in every type and layout.

mod pointwise;
mod support;

use kiln_kernels::elementwise::{Row, Saves, row, rows, table};
use kiln_kernels::{DType, KernelError};
use pointwise::{domain, layouts, map, map_in_place, operand, params, shapes};
use support::{Data, Device, FLOATS, close, numbers, tolerance};

/// Rows over f64 vectors.
fn eval(d: &Device, row: &'static Row, params: [f64; 2], inputs: &[&[f64]]) -> Vec<f64> {
    let data: Vec<Data> = inputs.iter().map(|x| d.dense(DType::F64, &[x.len()], x)).collect();
    map(d, row, params, &data.iter().collect::<Vec<_>>()).unwrap()
}
fn eval1(name: &str, params: [f64; 2], inputs: &[f64]) -> f64 {
    eval(&Device::cpu(), row(name), params, &inputs.iter().map(std::slice::from_ref).collect::<Vec<_>>())[0]
}
/// The gradient of input `i` for an upstream gradient of `g`.
fn gradient(d: &Device, row: &'static Row, i: usize, params: [f64; 2], inputs: &[&[f64]], g: &[f64]) -> Vec<f64> {
    let how = row.gradient.as_ref().unwrap();
    let out = eval(d, row, params, inputs);
    let mut saved: Vec<&[f64]> = match how.saves {
        Saves::Nothing => vec![],
        Saves::Inputs => inputs.to_vec(),
        Saves::Output => vec![&out],
    };
    saved.push(g);
    eval(d, how.row(i), params, &saved)
}
fn gradient1(name: &str, i: usize, params: [f64; 2], inputs: &[f64], g: f64) -> f64 {
    let inputs: Vec<&[f64]> = inputs.iter().map(std::slice::from_ref).collect();
    gradient(&Device::cpu(), row(name), i, params, &inputs, &[g])[0]
}

type One<'a> = &'a dyn Fn(f64) -> f64;
type Two<'a> = &'a dyn Fn(f64, f64) -> f64;

#[test]
fn values_are_those_of_the_formulas() {
    let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let one: &[(&str, One)] = &[
        ("neg", &|x| -x),
        ("abs", &f64::abs),
        ("sign", &f64::signum),
        ("square", &|x| x * x),
        ("reciprocal", &|x| 1.0 / x),
        ("exp", &f64::exp),
        ("expm1", &f64::exp_m1),
        ("sin", &f64::sin),
        ("cos", &f64::cos),
        ("tanh", &f64::tanh),
        ("sigmoid", &sigmoid),
        ("floor", &f64::floor),
        ("ceil", &f64::ceil),
        ("round", &f64::round_ties_even),
        ("relu", &|x| x.max(0.0)),
        ("silu", &|x| x * sigmoid(x)),
        ("gelu", &gelu),
        ("affine", &|x| x * 2.0 + 3.0),
        ("clamp", &|x| x.clamp(-1.0, 1.0)),
        ("leaky_relu", &|x| if x > 0.0 { x } else { 2.0 * x }),
        ("log", &f64::ln),
        ("log1p", &f64::ln_1p),
        ("sqrt", &f64::sqrt),
        ("rsqrt", &|x| 1.0 / x.sqrt()),
        ("pow_scalar", &|x| x.powi(3)),
    ];
    let d = Device::cpu();
    for (name, formula) in one {
        let x: Vec<f64> = numbers(DType::F64, 3000, 1).into_iter().map(domain(row(name))).collect();
        let wanted: Vec<f64> = x.iter().map(|&x| formula(x)).collect();
        close(&eval(&d, row(name), params(row(name)), &[&x]), &wanted, 1e-15, name);
    }
    let two: &[(&str, Two)] = &[
        ("add", &|x, y| x + y),
        ("sub", &|x, y| x - y),
        ("mul", &|x, y| x * y),
        ("div", &|x, y| x / y),
        ("pow", &f64::powf),
        ("maximum", &f64::max),
        ("minimum", &f64::min),
        ("sq_diff", &|x, y| (x - y) * (x - y)),
        ("lerp", &|x, y| x + 2.0 * (y - x)),
    ];
    for (name, formula) in two {
        let [x, y] = [2, 3].map(|seed| numbers(DType::F64, 3000, seed).into_iter().map(domain(row(name))).collect::<Vec<_>>());
        let wanted: Vec<f64> = x.iter().zip(&y).map(|(&x, &y)| formula(x, y)).collect();
        close(&eval(&d, row(name), [2.0, 3.0], &[&x, &y]), &wanted, 1e-15, name);
    }
    assert_eq!(eval1("addcmul", [2.0, 0.0], &[1.0, 3.0, 5.0]), 31.0);
    assert_eq!(eval1("mul_add", [0.0; 2], &[2.0, 3.0, 5.0]), 11.0);
}

#[test]
fn erf_and_gelu_have_known_values() {
    // From the tables of Abramowitz and Stegun: erf(0.5), erf(2); x P(N < x) at 1 and -3.
    close(
        &eval(&Device::cpu(), row("erf"), [0.0; 2], &[&[0.5, 2.0]]),
        &[0.520_499_877_813_046_5, 0.995_322_265_018_952_7],
        1e-15,
        "erf",
    );
    let wanted = [0.841_344_746_068_542_9, -0.004_049_694_094_890_284];
    close(&eval(&Device::cpu(), row("gelu_erf"), [0.0; 2], &[&[1.0, -3.0]]), &wanted, 1e-14, "gelu_erf");
}

#[test]
fn gradients_match_central_differences() {
    let d = Device::cpu();
    for row in rows().iter().filter(|row| row.gradient.is_some()) {
        let n = 200;
        let inputs: Vec<Vec<f64>> =
            (0..row.inputs as u64).map(|i| numbers(DType::F64, n, 7 + i).into_iter().map(domain(row)).collect()).collect();
        let (g, p, h) = (numbers(DType::F64, n, 5), params(row), 1e-6);
        for i in 0..row.inputs {
            let at = |step: f64| {
                let moved: Vec<f64> = inputs[i].iter().map(|x| x + step).collect();
                eval(&d, row, p, &(0..row.inputs).map(|k| if k == i { &moved[..] } else { &inputs[k] }).collect::<Vec<_>>())
            };
            let wanted: Vec<f64> = at(h).iter().zip(at(-h)).zip(&g).map(|((up, down), g)| (up - down) / (2.0 * h) * g).collect();
            let inputs: Vec<&[f64]> = inputs.iter().map(|x| &x[..]).collect();
            let found = gradient(&d, row, i, p, &inputs, &g);
            close(&found, &wanted, 1e-8, &format!("{} input {i}", row.name));
        }
    }
}

#[test]
fn gradients_at_kinks_are_those_of_pytorch() {
    assert_eq!(gradient1("relu", 0, [0.0; 2], &[0.0], 3.0), 0.0);
    assert_eq!(gradient1("abs", 0, [0.0; 2], &[0.0], 3.0), 0.0);
    assert_eq!(gradient1("leaky_relu", 0, [0.5, 0.0], &[0.0], 3.0), 1.5);
    for name in ["maximum", "minimum"] {
        assert_eq!([0, 1].map(|i| gradient1(name, i, [0.0; 2], &[1.0, 1.0], 1.0)), [0.5, 0.5]);
    }
    assert_eq!([0, 1].map(|i| gradient1("maximum", i, [0.0; 2], &[2.0, 3.0], 1.0)), [0.0, 1.0]);
    assert_eq!([-1.0, 1.0].map(|x| gradient1("clamp", 0, [-1.0, 1.0], &[x], 3.0)), [3.0, 3.0]);
    // Powers: x^0 has gradient 0 even at 0, and 0^y none in y.
    assert_eq!(gradient1("pow_scalar", 0, [0.0, 0.0], &[0.0], f64::INFINITY), 0.0);
    assert_eq!(gradient1("pow", 0, [0.0; 2], &[0.0, 0.0], 1.0), 0.0);
    assert_eq!(gradient1("pow", 1, [0.0; 2], &[0.0, 2.0], 1.0), 0.0);
    close(&[gradient1("pow", 0, [0.0; 2], &[2.0, 3.0], 1.0)], &[12.0], 1e-15, "3 x^2");
    close(&[gradient1("pow", 1, [0.0; 2], &[2.0, 3.0], 1.0)], &[5.545_177_444], 1e-9, "x^3 ln x");
}

#[test]
fn nan_goes_through() {
    for name in ["relu", "sign", "abs", "clamp", "leaky_relu", "gelu", "silu"] {
        assert!(eval1(name, [-1.0, 1.0], &[f64::NAN]).is_nan(), "{name}");
    }
    for name in ["maximum", "minimum"] {
        assert!(eval1(name, [0.0; 2], &[f64::NAN, 1.0]).is_nan() && eval1(name, [0.0; 2], &[1.0, f64::NAN]).is_nan(), "{name}");
    }
}

#[test]
fn other_float_types_are_the_f64_values_rounded() {
    let d = Device::cpu();
    for row in rows().iter().filter(|row| row.floats) {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let (data, values): (Vec<Data>, Vec<Vec<f64>>) =
                (0..row.inputs as u64).map(|i| operand(&d, dtype, &layouts()[0], i, domain(row))).unzip();
            let wanted = eval(&d, row, params(row), &values.iter().map(|v| &v[..]).collect::<Vec<_>>());
            let found = map(&d, row, params(row), &data.iter().collect::<Vec<_>>()).unwrap();
            close(&found, &wanted, tolerance(dtype, 1), &format!("{} {dtype}", row.name));
        }
    }
}

#[test]
fn layouts_change_no_bit() {
    let d = Device::cpu();
    for name in ["identity", "tanh", "add", "div", "mul_add", "addcmul_backward_y"] {
        for dtype in FLOATS {
            for shift in 0..layouts().len() {
                let layout = |i: usize| layouts()[(shift + i * 3) % layouts().len()].clone();
                let (data, values): (Vec<Data>, Vec<Vec<f64>>) =
                    (0..row(name).inputs).map(|i| operand(&d, dtype, &layout(i), i as u64, |v| v)).unzip();
                let dense: Vec<Data> = values.iter().map(|v| d.dense(dtype, data[0].layout.dims(), v)).collect();
                let run = |x: &[Data]| map(&d, row(name), [2.0, 3.0], &x.iter().collect::<Vec<_>>()).unwrap();
                assert_eq!(run(&data), run(&dense), "{name} {dtype} from layout {shift}");
            }
        }
    }
}

#[test]
fn shapes_at_the_edges() {
    let d = Device::cpu();
    for dims in shapes() {
        let x = numbers(DType::F32, dims.iter().product(), 1);
        let data = d.dense(DType::F32, &dims, &x);
        let twice: Vec<f64> = x.iter().map(|x| x + x).collect();
        assert_eq!(map(&d, &table::ADD, [0.0; 2], &[&data, &data]).unwrap(), twice);
        let other = d.dense(DType::F32, &dims, &x);
        assert_eq!(map_in_place(&d, &table::ADD, [0.0; 2], &data, &[&other]).unwrap(), twice);
    }
}

#[test]
fn in_place_overwrites_any_layout_of_distinct_elements() {
    let d = Device::cpu();
    for dtype in FLOATS {
        for layout in layouts().into_iter().filter(|l| !l.strides().contains(&0)) {
            let (x, values) = operand(&d, dtype, &layout, 1, |v| v);
            let (y, others) = operand(&d, dtype, &layouts()[4], 2, |v| v);
            let wanted = map(
                &d,
                &table::SUB,
                [0.0; 2],
                &[&d.dense(dtype, layout.dims(), &values), &d.dense(dtype, layout.dims(), &others)],
            );
            assert_eq!(map_in_place(&d, &table::SUB, [0.0; 2], &x, &[&y]).unwrap(), wanted.unwrap(), "{dtype} {layout:?}");
        }
    }
}

#[test]
fn integers_wrap_and_take_whole_parameters() {
    let d = Device::cpu();
    let x = d.dense(DType::U8, &[3], &[0.0, 200.0, 255.0]);
    assert_eq!(map(&d, row("add"), [0.0; 2], &[&x, &x]).unwrap(), [0.0, 144.0, 254.0]);
    assert_eq!(map(&d, row("neg"), [0.0; 2], &[&x]).unwrap(), [0.0, 56.0, 1.0]);
    assert_eq!(map(&d, row("affine"), [2.0, -1.0], &[&x]).unwrap(), [255.0, 143.0, 253.0]);
    assert_eq!(map(&d, row("clamp"), [-5.0, 300.0], &[&x]).unwrap(), [0.0, 200.0, 255.0]);
    assert_eq!(map(&d, row("clamp"), [f64::NEG_INFINITY, 7.0], &[&x]).unwrap(), [0.0, 7.0, 7.0]);
    let y = d.dense(DType::I64, &[2], &[-3.0, 4.0]);
    assert_eq!(map(&d, row("abs"), [0.0; 2], &[&y]).unwrap(), [3.0, 4.0]);
    assert_eq!(map(&d, row("sign"), [0.0; 2], &[&y]).unwrap(), [-1.0, 1.0]);
    let error = map(&d, row("affine"), [0.5, 0.0], &[&y]).unwrap_err();
    assert_eq!(error.to_string(), "affine: 0.5 is no whole number, and i64 has no others");
}

#[test]
fn what_does_not_exist_or_fit_is_an_error() {
    let d = Device::cpu();
    let (x, y) = (d.dense(DType::I64, &[2], &[1.0, 2.0]), d.dense(DType::I64, &[3], &[1.0, 2.0, 3.0]));
    let error = map(&d, row("exp"), [0.0; 2], &[&x]).unwrap_err();
    assert!(matches!(error, KernelError::DType { kernel: "exp", dtype: DType::I64 }), "{error}");
    assert_eq!(map(&d, row("add"), [0.0; 2], &[&x]).unwrap_err().to_string(), "add takes 2 inputs and got 1");
    assert!(matches!(map(&d, row("add"), [0.0; 2], &[&x, &y]).unwrap_err(), KernelError::Operand(_)));
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let d = Device::cpu();
    let (x, _) = operand(&d, DType::F32, &layouts()[2], 1, |v| v);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| map(&d, row("gelu"), [0.0; 2], &[&x]).unwrap())
    };
    assert!(run(1) == run(2) && run(1) == run(5));
}

#[test]
fn rows_say_what_they_read() {
    assert!(!table::MUL_BACKWARD_X.reads(0) && table::MUL_BACKWARD_X.reads(1) && table::MUL_BACKWARD_X.reads(2));
    assert!(!table::DIV_BACKWARD_X.reads(0) && table::DIV_BACKWARD_Y.reads(0));
    for row in rows().iter().filter(|row| row.gradient.is_some()) {
        let gradient = row.gradient.as_ref().unwrap();
        assert_eq!(gradient.rows.len(), row.inputs, "{}", row.name);
        for (i, name) in gradient.rows.iter().enumerate() {
            let saved = match gradient.saves {
                Saves::Nothing => 0,
                Saves::Inputs => row.inputs,
                Saves::Output => 1,
            };
            assert_eq!((gradient.row(i).name, gradient.row(i).inputs), (*name, saved + 1), "{}", row.name);
        }
    }
}
