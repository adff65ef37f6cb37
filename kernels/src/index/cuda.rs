//! CUDA launches.

use super::scratch::{CHUNK, Scratch, TILE};
use super::{IndexAdd, IndexSelect, split};
use crate::cuda::{Checked, Cuda, Launch, Source, SourceText, Variant, param};
use crate::host::{expect_dense, undefined};
use crate::{Arg, DType, KernelError, Result};
use kiln_alloc::{Stream, Write};

const DIVIDE: &str = include_str!("../../cuda/divide.cuh");
static SELECT: Source = Source { name: "index_select", texts: &[DIVIDE, include_str!("../../cuda/index.cu")], fmad: true };
pub(crate) static ADD: Source = Source {
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
    let error = cuda.error_word(stream)?;
    let types = [k.src.dtype, k.out.dtype, k.index.dtype];
    let sums = Sums { name: NAME, types, src: k.src.address(), out: k.out.address(), n, outer, size, inner };
    add_by_key(sums, cuda, stream, workspace, |keys| {
        let f = cuda.function(&ADD, Variant::types(&types), "index_keys")?;
        let (index, count, size) = (k.index.address(), n as u32, size as i64);
        let (word, checked) = (error.address(), Checked::IndexAdd as u32);
        let params = [param(&index), param(&keys), param(&count), param(&size), param(&word), param(&checked)];
        // SAFETY: `index_keys(const T2* index, u32* keys, u32 n, i64 size, ErrorWord* error, u32 kernel)`; the index was checked to have n
        // elements, there is room for as many keys, and the tokens live.
        unsafe { cuda.launch(f, Launch::threads(n, 256), stream, &params) }
    })
}

/// `out[o][key[j]][i] += src[o][j][i]`: addresses, types (`src`, `out`, and the index, which tells variants apart) and sizes. There is something to add.
pub(crate) struct Sums {
    pub name: &'static str,
    pub types: [DType; 3],
    pub src: u64,
    pub out: u64,
    /// Number of keys, which fits i32.
    pub n: usize,
    pub outer: usize,
    /// Keys are smaller; fits u32.
    pub size: usize,
    pub inner: usize,
}

/// Adds up by key, in order of position for equal keys; `fill` enqueues what writes the `n` keys (u32) to the address it is given.
pub(crate) fn add_by_key(
    k: Sums,
    cuda: &Cuda,
    stream: &Stream,
    workspace: Option<&mut Write<'_>>,
    fill: impl FnOnce(u64) -> Result<()>,
) -> Result<()> {
    let n = k.n;
    let scratch = Scratch::new(n, k.outer * k.inner, k.types[1]);
    let base = match workspace {
        Some(workspace) if workspace.bytes() >= scratch.bytes => workspace.address(),
        _ => return Err(KernelError::Library(format!("{}: the workspace has fewer than {} bytes", k.name, scratch.bytes))),
    };
    let at = |offset: usize| base + offset as u64;
    let variant = Variant::types(&k.types);
    let function = |entry| cuda.function(&ADD, variant, entry);
    let (src, out) = (k.src, k.out);
    let (count, columns) = (n as u32, (k.outer * k.inner) as u64);
    let (mut keys, mut spare_keys) = (at(scratch.keys[0]), at(scratch.keys[1]));
    let (mut positions, mut spare_positions) = (0u64, at(scratch.positions[0]));
    let totals = at(scratch.totals);

    fill(keys)?;
    let tiles = n.div_ceil(TILE);
    let entries = 256 * tiles as u32;
    for shift in (0..usize::BITS - (k.size - 1).leading_zeros().min(usize::BITS - 1)).step_by(8) {
        let count_params = [param(&keys), param(&totals), param(&count), param(&shift)];
        let sum_params = [param(&totals), param(&entries)];
        let ends = [param(&spare_keys), param(&spare_positions), param(&count), param(&shift)];
        let move_params = [&[param(&keys), param(&positions), param(&totals)], &ends[..]].concat();
        // SAFETY: `sort_count(const u32* keys, u32* totals, u32 n, u32 shift)`, `sort_sum(u32* totals, u32 n)`,
        // `sort_move(const u32* keys, const u32* positions, const u32* totals, u32* keys_out, u32* positions_out, u32 n, u32 shift)`.
        // Here and below, `Scratch` has room for what each launch writes, and the tokens of the caller live.
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
    let (size, inner) = (k.size as u64, k.inner as u64);
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
