//! CUDA launches.

use super::scratch::{CHUNK, Scratch, TILE};
use super::{IndexAdd, IndexSelect, split};
use crate::cuda::{Checked, Cuda, Launch, Source, SourceText, Variant, param};
use crate::host::{expect_dense, undefined};
use crate::{Arg, DType, KernelError, Result};
use kiln_alloc::{Stream, Write};

const DIVIDE: &str = include_str!("../../cuda/divide.cuh");
static SELECT: Source = Source { name: "index_select", texts: &[DIVIDE, include_str!("../../cuda/index.cu")], fmad: true };
static ADD: Source = Source {
    name: "index_add",
    texts: &[DIVIDE, include_str!("../../cuda/sort.cuh"), include_str!("../../cuda/index_add.cu")],
    fmad: true,
};

/// Number of indices, their type and layout checked; an error where there are indices into a dim of no elements.
fn indices(index: &Arg<'_>, size: usize, kernel: &'static str) -> Result<usize> {
    if !matches!(index.dtype, DType::I64 | DType::U32) {
        return Err(undefined(kernel, index.dtype));
    }
    let n = index.layout.elements();
    expect_dense(index.layout, n, kernel)?;
    if n > 0 && size == 0 {
        return Err(KernelError::Index { kernel, value: 0, size });
    }
    Ok(n)
}

pub(super) fn index_select(k: IndexSelect<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    const NAME: &str = "index_select";
    let (outer, size, inner) = split(k.x.layout, k.dim, NAME)?;
    let n = indices(&k.index, size, NAME)?;
    expect_dense(k.x.layout, outer * size * inner, NAME)?;
    expect_dense(k.out.layout, outer * n * inner, NAME)?;
    if k.x.dtype != k.out.dtype {
        return Err(undefined(NAME, k.out.dtype));
    }
    if outer * n * inner == 0 {
        return Ok(());
    }
    let (x, index, out) = (k.x.address(), k.index.address(), k.out.address());
    // The widest unit that rows are whole and aligned in.
    let bytes = inner * k.x.dtype.size();
    let unit = 1 << (x | out | bytes as u64 | 16).trailing_zeros();
    let f = cuda.function(&SELECT, Variant::new(&[k.index.dtype], unit), "index_select")?;
    let error = cuda.error_word(stream)?;
    let inner = (bytes / unit as usize) as u64;
    let (units, n, size) = ((outer * n) as u64 * inner, n as u64, size as i64);
    let (word, checked) = (error.address(), Checked::IndexSelect as u32);
    let operands = [param(&x), param(&index), param(&out), param(&units), param(&n), param(&size), param(&inner)];
    let params = [&operands[..], &[param(&word), param(&checked)]].concat();
    // SAFETY: `index_select(const Unit* x, const T0* index, Unit* out, u64 units, u64 n, i64 size, u64 inner, ErrorWord* error,
    // u32 kernel)`; operands were checked for type and number of elements, units for alignment; the tokens live.
    unsafe { cuda.launch(f, Launch::threads(units as usize, 256), stream, &params) }
}

pub(super) fn index_add(k: IndexAdd<'_>, cuda: &Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
    const NAME: &str = "index_add";
    let (outer, size, inner) = split(k.out.layout, k.dim, NAME)?;
    let n = indices(&k.index, size, NAME)?;
    expect_dense(k.src.layout, outer * n * inner, NAME)?;
    expect_dense(k.out.layout, outer * size * inner, NAME)?;
    if k.out.dtype != k.src.dtype.accumulator() {
        return Err(undefined(NAME, k.out.dtype));
    }
    if outer * n * inner == 0 {
        return Ok(());
    }
    if n > i32::MAX as usize || size > u32::MAX as usize {
        return Err(KernelError::Library(format!("{NAME}: {n} indices into a dim of {size} are too many")));
    }
    let scratch = Scratch::of(&k);
    let base = match workspace {
        Some(workspace) if workspace.bytes() >= scratch.bytes => workspace.address(),
        _ => return Err(KernelError::Library(format!("{NAME}: the workspace has fewer than {} bytes", scratch.bytes))),
    };
    let at = |offset: usize| base + offset as u64;
    let variant = Variant::types(&[k.src.dtype, k.out.dtype, k.index.dtype]);
    let function = |entry| cuda.function(&ADD, variant, entry);
    let (src, index, out) = (k.src.address(), k.index.address(), k.out.address());
    let (count, columns) = (n as u32, (outer * inner) as u64);
    let (mut keys, mut spare_keys) = (at(scratch.keys[0]), at(scratch.keys[1]));
    let (mut positions, mut spare_positions) = (0u64, at(scratch.positions[0]));
    let totals = at(scratch.totals);

    let error = cuda.error_word(stream)?;
    let (word, checked, signed_size) = (error.address(), Checked::IndexAdd as u32, size as i64);
    let params = [param(&index), param(&keys), param(&count), param(&signed_size), param(&word), param(&checked)];
    // SAFETY: `index_keys(const T2* index, u32* keys, u32 n, i64 size, ErrorWord* error, u32 kernel)`; the index was checked to have n
    // elements, the workspace has room for n keys, and the tokens live. So for all launches here: `Scratch` has room for what each writes.
    unsafe { cuda.launch(function("index_keys")?, Launch::threads(n, 256), stream, &params)? };
    let tiles = n.div_ceil(TILE);
    let entries = 256 * tiles as u32;
    for shift in (0..usize::BITS - (size - 1).leading_zeros().min(usize::BITS - 1)).step_by(8) {
        let count_params = [param(&keys), param(&totals), param(&count), param(&shift)];
        let sum_params = [param(&totals), param(&entries)];
        let ends = [param(&spare_keys), param(&spare_positions), param(&count), param(&shift)];
        let move_params = [&[param(&keys), param(&positions), param(&totals)], &ends[..]].concat();
        // SAFETY: `sort_count(const u32* keys, u32* totals, u32 n, u32 shift)`, `sort_sum(u32* totals, u32 n)`,
        // `sort_move(const u32* keys, const u32* positions, const u32* totals, u32* keys_out, u32* positions_out, u32 n, u32 shift)`.
        unsafe {
            cuda.launch(function("sort_count")?, Launch::blocks(tiles, 256), stream, &count_params)?;
            cuda.launch(function("sort_sum")?, Launch::blocks(1, 1024), stream, &sum_params)?;
            cuda.launch(function("sort_move")?, Launch::blocks(tiles, 256), stream, &move_params)?;
        }
        std::mem::swap(&mut keys, &mut spare_keys);
        let other = if positions == 0 { at(scratch.positions[1]) } else { positions };
        (positions, spare_positions) = (spare_positions, other);
    }
    let chunks = n.div_ceil(CHUNK);
    let (heads, tails) = (at(scratch.heads), at(scratch.tails));
    let (size, inner) = (size as u64, inner as u64);
    let grid =
        |chunks: usize| Launch { grid: [chunks as u32, (columns.div_ceil(128)).min(65535) as u32, 1], block: 128, shared: 0 };
    let ends = [param(&count), param(&size), param(&inner), param(&columns)];
    let sums = [param(&out), param(&heads), param(&tails)];
    let params = [&[param(&src), param(&keys), param(&positions)], &sums[..], &ends].concat();
    // SAFETY: `index_add_chunks(const T0* src, const u32* keys, const u32* positions, T1* out, T1* heads, T1* tails, u32 n, u64 size,
    // u64 inner, u64 columns)`.
    unsafe { cuda.launch(function("index_add_chunks")?, grid(chunks), stream, &params)? };
    if chunks == 1 {
        return Ok(());
    }
    let params = [&[param(&keys)], &sums[..], &ends].concat();
    // SAFETY: `index_add_join(const u32* keys, T1* out, const T1* heads, const T1* tails, u32 n, u64 size, u64 inner, u64 columns)`, for
    // every chunk but the last.
    unsafe { cuda.launch(function("index_add_join")?, grid(chunks - 1), stream, &params) }
}

/// The sources of this family, for checking that they compile.
pub(crate) fn sources() -> Vec<SourceText> {
    use DType::*;
    let selects =
        [1, 2, 4, 8, 16].into_iter().flat_map(|unit| [I64, U32].map(|index| SELECT.listed(Variant::new(&[index], unit), "")));
    let adds = DType::ALL.into_iter().flat_map(|src| [I64, U32].map(|index| [src, src.accumulator(), index]));
    selects.chain(adds.map(|types| ADD.listed(Variant::types(&types), ""))).collect()
}
