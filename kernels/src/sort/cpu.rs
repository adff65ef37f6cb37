//! CPU code: pairs of a key and a position are sorted, so that equal elements stay in order. Threads share the rows; a single row is sorted by
//! all of them.

use super::{Put, Sort, check, check_index};
use crate::host::{dense, dense_mut, for_pieces, min_pieces};
use crate::scalar::with_element;
use crate::{Element, KernelError, Result, Scalar};
use rayon::prelude::*;

const NAME: &str = "sort";

/// A number whose order is that of the elements: NaN after all numbers, -0 as 0.
fn key<T: Element>(v: T) -> u64 {
    const SIGN: u64 = 1 << 63;
    match v.to_scalar() {
        Scalar::Int(v) => v as u64 ^ SIGN,
        Scalar::Float(v) if v.is_nan() => u64::MAX,
        Scalar::Float(v) => {
            let bits = if v == 0.0 { 0 } else { v.to_bits() };
            if bits & SIGN != 0 { !bits } else { bits | SIGN }
        }
    }
}

pub(super) fn sort(k: Sort<'_>) -> Result<()> {
    check(&k)?;
    with_element!(k.x.dtype, T => typed::<T>(k))
}

fn typed<T: Element>(mut k: Sort<'_>) -> Result<()> {
    let (rows, n, skip, take, descending) = (k.rows, k.n, k.skip, k.take, k.descending);
    let x = dense::<T>(&k.x, rows * n, NAME)?;
    let indices = dense_mut::<i64>(&mut k.indices, rows * take, NAME)?;
    if indices.is_empty() {
        return Ok(());
    }
    indices.par_chunks_mut(take).with_min_len(min_pieces(x.len())).zip(x.par_chunks(n)).for_each(|(indices, x)| {
        let keyed = |(i, &v): (usize, &T)| (if descending { !key(v) } else { key(v) }, i as u32);
        let mut pairs: Vec<(u64, u32)> = x.iter().enumerate().map(keyed).collect();
        // Only the front has to be in order.
        if skip + take < n {
            pairs.select_nth_unstable(skip + take - 1);
            pairs.truncate(skip + take);
        }
        if rows == 1 {
            pairs.par_sort_unstable()
        } else {
            pairs.sort_unstable()
        }
        indices.iter_mut().zip(&pairs[skip..]).for_each(|(o, pair)| *o = i64::from(pair.1));
    });
    if let Some(values) = &mut k.values {
        let values = dense_mut::<T>(values, rows * take, NAME)?;
        for_pieces(values, take, rows.saturating_mul(take), |first, values| {
            let row = &x[first / take * n..][..n];
            values.iter_mut().zip(&indices[first..]).for_each(|(o, &i)| *o = row[i as usize]);
        });
    }
    Ok(())
}

pub(super) fn put(k: Put<'_>) -> Result<()> {
    check_index(k.index.dtype)?;
    with_element!(k.g.dtype, T => put_typed::<T>(k))
}

fn put_typed<T: Element>(mut k: Put<'_>) -> Result<()> {
    let (rows, n, take) = (k.rows, k.n, k.take);
    let g = dense::<T>(&k.g, rows * take, NAME)?;
    let index = dense::<i64>(&k.index, rows * take, NAME)?;
    let out = dense_mut::<T>(&mut k.out, rows * n, NAME)?;
    if let Some(&value) = index.iter().find(|&&i| i < 0 || i as u64 >= n as u64) {
        return Err(KernelError::Index { kernel: NAME, value, size: n });
    }
    for_pieces(out, n, rows * n, |first, out| {
        let at = first / n.max(1) * take;
        index[at..at + take].iter().zip(&g[at..]).for_each(|(&i, &v)| out[i as usize] = v);
    });
    Ok(())
}
