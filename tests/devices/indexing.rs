//! Rows by index, and the sums that their gradients are.

use crate::support::{cases, each_close, f32s, gradient, layouts, leaf, read, tensor};
use kiln::{Backward, DType, Device, Result, Tensor};

cases![
    rows_and_columns_are_selected_from_any_layout,
    ids_of_any_shape_and_type,
    no_ids_give_no_rows,
    a_row_named_often_gathers_all_its_gradients,
    gradients_through_repeated_elements_add_up,
];

fn rows_and_columns_are_selected_from_any_layout(d: &Device) -> Result<()> {
    let index = Tensor::from_slice(&[2i64, 0, 2], 3, d)?;
    for dtype in DType::ALL {
        let x = tensor(&(0..12).map(f64::from).collect::<Vec<_>>(), (4, 3), dtype, d)?;
        for x in layouts(&x)? {
            assert_eq!(read(&x.index_select(0, &index)?)?, [6., 7., 8., 0., 1., 2., 6., 7., 8.], "{dtype}");
            assert_eq!(read(&x.index_select(-1, &index)?)?, [2., 0., 2., 5., 3., 5., 8., 6., 8., 11., 9., 11.], "{dtype}");
        }
    }
    Ok(())
}

fn ids_of_any_shape_and_type(d: &Device) -> Result<()> {
    let table = f32s(&[0., 0.5, 1., 1.5, 2., 2.5], (3, 2), d)?;
    let wanted = [2., 2.5, 1., 1.5, 1., 1.5, 0., 0.5];
    for dtype in [DType::I64, DType::U32] {
        let ids = tensor(&[2., 1., 1., 0.], (2, 2), dtype, d)?;
        assert_eq!(table.embedding(&ids)?.dims(), [2, 2, 2]);
        assert_eq!(read(&table.embedding(&ids)?)?, wanted);
        assert_eq!(read(&table.embedding(&ids.t()?)?.transpose(0, 1)?)?, wanted);
    }
    Ok(())
}

fn no_ids_give_no_rows(d: &Device) -> Result<()> {
    let table = leaf(&[1., 2., 3., 4.], (2, 2), d)?;
    let y = table.embedding(&Tensor::zeros((0, 3), DType::I64, d)?)?;
    assert_eq!(y.dims(), [0, 3, 2]);
    y.sum_all()?.backward()?;
    assert_eq!(gradient(&table)?, [0.; 4]);
    Ok(())
}

fn a_row_named_often_gathers_all_its_gradients(d: &Device) -> Result<()> {
    let ids = Tensor::zeros(12_500, DType::I64, d)?;
    for (dtype, g, wanted, near) in
        [(DType::F32, 1.0, 12_500.0, 1e-6), (DType::F16, 0.01, 125.0, 1e-3), (DType::BF16, 0.01, 125.0, 1e-2)]
    {
        let table = Tensor::zeros((3, 2), dtype, d)?.requires_grad()?;
        table.embedding(&ids)?.backward_with(&Tensor::full(g, (12_500, 2), dtype, d)?)?;
        let found = gradient(&table)?;
        each_close(&found[..2], &[wanted; 2], near);
        assert_eq!(found[2..], [0.; 4]);
    }
    Ok(())
}

fn gradients_through_repeated_elements_add_up(d: &Device) -> Result<()> {
    let v = leaf(&[1., 2.], 2, d)?;
    v.expand((3, 2))?.reshape(6)?.mul(&f32s(&[0., 1., 2., 3., 4., 5.], 6, d)?)?.sum_all()?.backward()?;
    assert_eq!(gradient(&v)?, [6., 9.]);
    let x = leaf(&[1., 2., 3.], (3, 1), d)?;
    x.expand((3, 3))?.narrow(0, 0, 2)?.mul(&f32s(&[1., 2., 3., 4., 5., 6.], (2, 3), d)?)?.sum_all()?.backward()?;
    assert_eq!(gradient(&x)?, [6., 15., 0.]);
    Ok(())
}
