//! Copies, fills, ranges, comparisons and selection on the CPU.

mod pointwise;
mod support;

use kiln_kernels::compare::Comparison;
use kiln_kernels::{DType, KernelError, Layout, Scalar};
use pointwise::{COMPARISONS, arange, compare, copy, eye, fill, layouts, operand, select, shapes};
use support::{Device, numbers, rounded};

#[test]
fn copies_between_any_layouts_and_types() {
    let d = Device::cpu();
    for (shift, from) in layouts().iter().enumerate() {
        let distinct: Vec<Layout> = layouts().into_iter().filter(|l| !l.strides().contains(&0)).collect();
        let to = &distinct[shift % distinct.len()];
        for (x_type, out_type) in DType::ALL.iter().flat_map(|&a| DType::ALL.map(|b| (a, b))) {
            let (x, values) = operand(&d, x_type, from, 1, |v| v.abs() * 3.0);
            let wanted = rounded(out_type, &values);
            let out = d.strided(out_type, to.clone(), &vec![9.0; to.elements()]);
            assert_eq!(copy(&d, &x, &out).unwrap(), wanted, "{x_type} {from:?} to {out_type} {to:?}");
        }
    }
}

#[test]
fn a_copy_leaves_what_lies_between_alone() {
    let d = Device::cpu();
    let x = d.dense(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let out = d.strided(DType::F32, Layout::new(&[2, 2], &[3, 1], 1), &[0.0; 4]);
    copy(&d, &x, &out).unwrap();
    let whole = support::Data { layout: Layout::contiguous(&[6]), ..out };
    assert_eq!(d.read(&whole), [7.0, 1.0, 2.0, 7.0, 3.0, 4.0]);
}

#[test]
fn shapes_at_the_edges() {
    let d = Device::cpu();
    for dims in shapes() {
        let x = numbers(DType::F32, dims.iter().product(), 1);
        let out = d.fresh(DType::F64, &dims);
        assert_eq!(copy(&d, &d.dense(DType::F32, &dims, &x), &out).unwrap(), x);
        assert_eq!(fill(&d, 3.into(), &out).unwrap(), vec![3.0; x.len()]);
    }
}

#[test]
fn fills_any_layout_with_any_type() {
    let d = Device::cpu();
    for dtype in DType::ALL {
        for layout in layouts().into_iter().filter(|l| !l.strides().contains(&0)) {
            let out = d.strided(dtype, layout.clone(), &vec![9.0; layout.elements()]);
            assert_eq!(fill(&d, Scalar::Int(5), &out).unwrap(), vec![5.0; layout.elements()], "{dtype} {layout:?}");
        }
    }
}

#[test]
fn ranges_do_not_add_up_errors() {
    let d = Device::cpu();
    let wanted: Vec<f64> = (0..100_000).map(|i| 0.6 + i as f64 * 0.1).collect();
    assert_eq!(arange(&d, 0.6.into(), 0.1.into(), DType::F64, wanted.len()).unwrap(), wanted);
    assert_eq!(arange(&d, 0.6.into(), 0.1.into(), DType::F32, wanted.len()).unwrap(), rounded(DType::F32, &wanted));
    assert_eq!(arange(&d, 5.0.into(), (-0.5).into(), DType::BF16, 4).unwrap(), [5.0, 4.5, 4.0, 3.5]);
    assert_eq!(arange(&d, (1_i64 << 52).into(), 3_i64.into(), DType::I64, 2).unwrap()[1], (1_i64 << 52) as f64 + 3.0);
    assert_eq!(arange(&d, 254_i64.into(), 1_i64.into(), DType::U8, 3).unwrap(), [254.0, 255.0, 0.0]);
}

#[test]
fn eye_has_ones_on_the_diagonal() {
    let d = Device::cpu();
    for dtype in DType::ALL {
        assert_eq!(eye(&d, dtype, &[2, 3]).unwrap(), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    }
    assert_eq!(eye(&d, DType::F32, &[0, 3]).unwrap(), []);
    assert!(matches!(eye(&d, DType::F32, &[3]).unwrap_err(), KernelError::Operand(_)));
}

#[test]
fn comparisons_of_any_layouts_and_types() {
    let d = Device::cpu();
    for dtype in DType::ALL {
        for shift in 0..layouts().len() {
            // Few values, so that many are equal.
            let few = |v: f64| (v.abs() * 2.0).floor().min(3.0);
            let (a, left) = operand(&d, dtype, &layouts()[shift], 1, few);
            let (b, right) = operand(&d, dtype, &layouts()[(shift + 3) % layouts().len()], 2, few);
            for op in COMPARISONS {
                let one = |(a, b): (&f64, &f64)| match op {
                    Comparison::Eq => a == b,
                    Comparison::Ne => a != b,
                    Comparison::Lt => a < b,
                    Comparison::Le => a <= b,
                    Comparison::Gt => a > b,
                    Comparison::Ge => a >= b,
                };
                let wanted: Vec<f64> = left.iter().zip(&right).map(|pair| one(pair) as u8 as f64).collect();
                assert_eq!(compare(&d, op, &a, &b).unwrap(), wanted, "{op:?} {dtype} from layout {shift}");
            }
        }
    }
}

#[test]
fn nan_equals_nothing() {
    let d = Device::cpu();
    for dtype in support::FLOATS {
        let x = d.dense(dtype, &[1], &[f64::NAN]);
        assert_eq!(COMPARISONS.map(|op| compare(&d, op, &x, &x).unwrap()[0]), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }
}

#[test]
fn selection_takes_one_side_or_the_other() {
    let d = Device::cpu();
    for dtype in DType::ALL {
        for shift in 0..layouts().len() {
            let layout = |i: usize| layouts()[(shift + 2 * i) % layouts().len()].clone();
            let (mask, chosen) = operand(&d, DType::U8, &layout(0), 1, |v| (v % 3.0).floor());
            let (a, left) = operand(&d, dtype, &layout(1), 2, |v| v);
            let (b, right) = operand(&d, dtype, &layout(2), 3, |v| v);
            let wanted: Vec<f64> =
                chosen.iter().zip(left.iter().zip(&right)).map(|(m, (a, b))| if *m != 0.0 { *a } else { *b }).collect();
            assert_eq!(select(&d, &mask, &a, &b).unwrap(), wanted, "{dtype} from layout {shift}");
        }
    }
}

#[test]
fn a_mask_of_another_type_is_an_error() {
    let d = Device::cpu();
    let x = d.dense(DType::F32, &[1], &[1.0]);
    assert!(matches!(select(&d, &x, &x, &x).unwrap_err(), KernelError::Operand(_)));
}
