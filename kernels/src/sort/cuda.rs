//! CUDA launches: one for rows of a tile, else one for the tiles, one for each doubling of the runs, and one that takes the results.

use super::{Put, Sort, check, check_index};
use crate::cuda::{Cuda, Launch, Source, SourceText, Variant, param};
use crate::host::{expect_dense, undefined};
use crate::{DType, KernelError, Result};
use kiln_alloc::{Stream, Write};

const NAME: &str = "sort";
static SORT: Source =
    Source { name: NAME, texts: &[include_str!("../../cuda/divide.cuh"), include_str!("../../cuda/sort.cu")], fmad: true };
/// Elements that a block sorts; rows longer than the last are merged of such tiles.
const TILES: [usize; 3] = [64, 512, 2048];

/// Byte offsets of the two buffers of keys and of positions; nothing where a row is one tile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scratch {
    keys: [usize; 2],
    places: [usize; 2],
    /// Bytes of them all.
    pub bytes: usize,
}

impl Scratch {
    pub fn of(k: &Sort<'_>) -> Scratch {
        let elements = k.rows * k.n;
        if k.n <= TILES[2] || elements * k.take == 0 {
            return Scratch::default();
        }
        let key = if k.x.dtype.size() == 8 { 8 } else { 4 };
        let (keys, places) = ((elements * key).next_multiple_of(16), (elements * 4).next_multiple_of(16));
        Scratch { keys: [0, keys], places: [2 * keys, 2 * keys + places], bytes: 2 * (keys + places) }
    }
}

pub(super) fn sort(k: Sort<'_>, cuda: &Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
    check(&k)?;
    check_index(k.indices.dtype)?;
    let (rows, n, take) = (k.rows, k.n, k.take);
    expect_dense(k.x.layout, rows * n, NAME)?;
    expect_dense(k.indices.layout, rows * take, NAME)?;
    if let Some(values) = &k.values {
        expect_dense(values.layout, rows * take, NAME)?;
        if values.dtype != k.x.dtype {
            return Err(undefined(NAME, values.dtype));
        }
    }
    if rows * n * take == 0 {
        return Ok(());
    }
    let tile = TILES.into_iter().find(|&tile| n <= tile).unwrap_or(TILES[2]);
    let tiles = n.div_ceil(tile);
    if rows.saturating_mul(tiles) > i32::MAX as usize {
        return Err(KernelError::Library(format!("{NAME}: {rows} rows of {n} elements are too many")));
    }
    let scratch = Scratch::of(&k);
    let base = match workspace {
        _ if scratch.bytes == 0 => 0,
        Some(workspace) if workspace.bytes() >= scratch.bytes => workspace.address(),
        _ => return Err(KernelError::Library(format!("{NAME}: the workspace has fewer than {} bytes", scratch.bytes))),
    };
    let at = |offset: usize| if base == 0 { 0 } else { base + offset as u64 };
    let variant = Variant::new(&[k.x.dtype], tile as u32);
    let function = |entry| cuda.function(&SORT, variant, entry);
    let (x, indices) = (k.x.address(), k.indices.address());
    let values = k.values.as_ref().map_or(0, |values| values.address());
    let (mut keys, mut spare_keys) = (at(scratch.keys[0]), at(scratch.keys[1]));
    let (mut places, mut spare_places) = (at(scratch.places[0]), at(scratch.places[1]));
    let (elements, count, skip, results) = ((rows * n) as u64, n as u64, k.skip as u64, (rows * take) as u64);
    let (pieces, take, descending) = (tiles as u64, take as u64, u32::from(k.descending));

    let operands = [param(&x), param(&keys), param(&places), param(&values), param(&indices), param(&count)];
    let params = [&operands[..], &[param(&pieces), param(&descending), param(&skip), param(&take)]].concat();
    // SAFETY: `sort_tiles(const T0* x, Key* keys, u32* places, T0* values, i64* indices, u64 n, u64 tiles, u32 descending, u64 skip, u64 take)`;
    // operands were checked for type and number of elements, skip + take is at most n, the scratch has room for every key and position, and
    // the tokens live. So for all launches here.
    unsafe { cuda.launch(function("sort_tiles")?, Launch::blocks(rows * tiles, tile as u32 / 2), stream, &params)? };
    if base == 0 {
        return Ok(());
    }
    let mut width = tile as u64;
    while width < count {
        let ends = [param(&elements), param(&count), param(&width)];
        let params = [&[param(&keys), param(&places), param(&spare_keys), param(&spare_places)], &ends[..]].concat();
        // SAFETY: `sort_merge(const Key* keys, const u32* places, Key* keys_out, u32* places_out, u64 elements, u64 n, u64 width)`.
        unsafe { cuda.launch(function("sort_merge")?, Launch::threads(rows * n, 256), stream, &params)? };
        std::mem::swap(&mut keys, &mut spare_keys);
        std::mem::swap(&mut places, &mut spare_places);
        width *= 2;
    }
    let operands = [param(&x), param(&places), param(&values), param(&indices), param(&results), param(&count)];
    let params = [&operands[..], &[param(&skip), param(&take)]].concat();
    // SAFETY: `sort_take(const T0* x, const u32* places, T0* values, i64* indices, u64 results, u64 n, u64 skip, u64 take)`.
    unsafe { cuda.launch(function("sort_take")?, Launch::threads(results as usize, 256), stream, &params) }
}

pub(super) fn put(k: Put<'_>, cuda: &Cuda, stream: &Stream) -> Result<()> {
    check_index(k.index.dtype)?;
    let (rows, n, take) = (k.rows, k.n, k.take);
    expect_dense(k.g.layout, rows * take, NAME)?;
    expect_dense(k.index.layout, rows * take, NAME)?;
    expect_dense(k.out.layout, rows * n, NAME)?;
    if k.out.dtype != k.g.dtype {
        return Err(undefined(NAME, k.out.dtype));
    }
    if rows * take == 0 {
        return Ok(());
    }
    let (g, index, out) = (k.g.address(), k.index.address(), k.out.address());
    let (elements, n, take) = ((rows * take) as u64, n as u64, take as u64);
    let f = cuda.function(&SORT, Variant::new(&[k.g.dtype], TILES[0] as u32), "sort_put")?;
    let params = [param(&g), param(&index), param(&out), param(&elements), param(&n), param(&take)];
    // SAFETY: `sort_put(const T0* g, const i64* index, T0* out, u64 elements, u64 n, u64 take)`; operands were checked for type and number of
    // elements, the indices come from a sort of rows of n elements, and the tokens live.
    unsafe { cuda.launch(f, Launch::threads(elements as usize, 256), stream, &params) }
}

/// The sources of this family, for checking that they compile.
pub(crate) fn sources() -> Vec<SourceText> {
    DType::ALL.into_iter().flat_map(|t| TILES.map(|tile| SORT.listed(Variant::new(&[t], tile as u32), ""))).collect()
}
