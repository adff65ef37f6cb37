//! CUDA launches.

use super::{Gather, Scatter, ScatterAdd, Sizes};
use crate::cuda::{Checked, Cuda, Launch, Source, SourceText, Variant, param};
use crate::host::{expect_dense, undefined};
use crate::index::{self, Sums};
use crate::{Arg, DType, KernelError, Result};
use kiln_alloc::{Stream, Write};

const DIVIDE: &str = include_str!("../../cuda/divide.cuh");
static GATHER: Source = Source { name: "gather", texts: &[DIVIDE, include_str!("../../cuda/gather.cu")], fmad: true };

/// An error where the index has another type, or names elements of a dim that has none.
fn check_index(arg: &Arg<'_>, s: Sizes, kernel: &'static str) -> Result<()> {
    if !matches!(arg.dtype, DType::I64 | DType::U32) {
        return Err(undefined(kernel, arg.dtype));
    }
    expect_dense(arg.layout, s.count(), kernel)?;
    if s.count() > 0 && s.size == 0 {
        return Err(KernelError::Index { kernel, value: 0, size: 0 });
    }
    Ok(())
}

fn too_many(kernel: &'static str, s: Sizes) -> KernelError {
    KernelError::Library(format!("{kernel}: {} indices into {} elements are too many", s.count(), s.elements()))
}

pub(super) fn gather(k: Gather<'_>, cuda: &Cuda, stream: &Stream) -> Result<()> {
    const NAME: &str = "gather";
    let s = Sizes::new(k.x.layout.dims(), k.index.layout.dims(), k.dim, NAME)?;
    check_index(&k.index, s, NAME)?;
    expect_dense(k.x.layout, s.elements(), NAME)?;
    expect_dense(k.out.layout, s.count(), NAME)?;
    if k.x.dtype != k.out.dtype {
        return Err(undefined(NAME, k.out.dtype));
    }
    if s.count() == 0 {
        return Ok(());
    }
    let f = cuda.function(&GATHER, Variant::new(&[k.index.dtype], k.x.dtype.size() as u32), "gather")?;
    let error = cuda.error_word(stream)?;
    let (x, index, out) = (k.x.address(), k.index.address(), k.out.address());
    let (count, n, size, inner) = (s.count() as u64, s.n as u64, s.size as i64, s.inner as u64);
    let (word, checked) = (error.address(), Checked::Gather as u32);
    let operands = [param(&x), param(&index), param(&out), param(&count), param(&n), param(&size), param(&inner)];
    let params = [&operands[..], &[param(&word), param(&checked)]].concat();
    // SAFETY: `gather(const Unit* x, const T0* index, Unit* out, u64 count, u64 n, i64 size, u64 inner, ErrorWord* error, u32 kernel)`;
    // operands were checked for type and number of elements, units are elements; the tokens live.
    unsafe { cuda.launch(f, Launch::threads(s.count(), 256), stream, &params) }
}

pub(super) fn scatter(k: Scatter<'_>, cuda: &Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
    const NAME: &str = "scatter";
    let s = Sizes::new(k.out.layout.dims(), k.index.layout.dims(), k.dim, NAME)?;
    check_index(&k.index, s, NAME)?;
    expect_dense(k.src.layout, s.count(), NAME)?;
    expect_dense(k.out.layout, s.elements(), NAME)?;
    if k.src.dtype != k.out.dtype {
        return Err(undefined(NAME, k.out.dtype));
    }
    if s.count() == 0 {
        return Ok(());
    }
    if s.count() >= u32::MAX as usize {
        return Err(too_many(NAME, s));
    }
    let last = match workspace {
        Some(workspace) if workspace.bytes() >= s.elements() * 4 => workspace.address(),
        _ => return Err(KernelError::Library(format!("{NAME}: the workspace has fewer than {} bytes", s.elements() * 4))),
    };
    let function = |entry| cuda.function(&GATHER, Variant::new(&[k.index.dtype], k.src.dtype.size() as u32), entry);
    let (clear, find, write) = (function("scatter_clear")?, function("scatter_last")?, function("scatter_write")?);
    let error = cuda.error_word(stream)?;
    let (src, index, out, elements) = (k.src.address(), k.index.address(), k.out.address(), s.elements() as u64);
    let (count, n, size, inner) = (s.count() as u64, s.n as u64, s.size as i64, s.inner as u64);
    let (word, checked) = (error.address(), Checked::Scatter as u32);
    let ends = [param(&count), param(&n), param(&size), param(&inner), param(&word), param(&checked)];
    let find_params = [&[param(&index), param(&last)], &ends[..]].concat();
    let write_params = [&[param(&src), param(&index), param(&last), param(&out)], &ends[..]].concat();
    // SAFETY: `scatter_clear(u32* last, u64 elements)`, `scatter_last(const T0* index, u32* last, u64 count, u64 n, i64 size, u64 inner,
    // ErrorWord* error, u32 kernel)`, `scatter_write(const Unit* src, const T0* index, const u32* last, Unit* out, ..)` with the same end; the
    // workspace has a u32 for each element of `out`, operands were checked for type and number of elements; the tokens live.
    unsafe {
        cuda.launch(clear, Launch::threads(s.elements(), 256), stream, &[param(&last), param(&elements)])?;
        cuda.launch(find, Launch::threads(s.count(), 256), stream, &find_params)?;
        cuda.launch(write, Launch::threads(s.count(), 256), stream, &write_params)
    }
}

pub(super) fn scatter_add(k: ScatterAdd<'_>, cuda: &Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
    const NAME: &str = "scatter_add";
    let s = Sizes::new(k.out.layout.dims(), k.index.layout.dims(), k.dim, NAME)?;
    check_index(&k.index, s, NAME)?;
    expect_dense(k.src.layout, s.count(), NAME)?;
    expect_dense(k.out.layout, s.elements(), NAME)?;
    if k.out.dtype != k.src.dtype.accumulator() {
        return Err(undefined(NAME, k.out.dtype));
    }
    if s.count() == 0 {
        return Ok(());
    }
    if s.count() > i32::MAX as usize || s.elements() > u32::MAX as usize {
        return Err(too_many(NAME, s));
    }
    let error = cuda.error_word(stream)?;
    // All elements in one dim, each index the place of an element.
    let types = [k.src.dtype, k.out.dtype, k.index.dtype];
    let sums = Sums {
        name: NAME,
        types,
        src: k.src.address(),
        out: k.out.address(),
        n: s.count(),
        outer: 1,
        size: s.elements(),
        inner: 1,
    };
    index::add_by_key(sums, cuda, stream, workspace, |keys| {
        let f = cuda.function(&index::ADD, Variant::types(&types), "scatter_keys")?;
        let (index, count, n, size, inner) = (k.index.address(), s.count() as u32, s.n as u64, s.size as i64, s.inner as u64);
        let (word, checked) = (error.address(), Checked::ScatterAdd as u32);
        let operands = [param(&index), param(&keys), param(&count), param(&n), param(&size), param(&inner)];
        let params = [&operands[..], &[param(&word), param(&checked)]].concat();
        // SAFETY: `scatter_keys(const T2* index, u32* keys, u32 count, u64 n, i64 size, u64 inner, ErrorWord* error, u32 kernel)`; the index
        // was checked to have `count` elements, there is room for as many keys, and the tokens live.
        unsafe { cuda.launch(f, Launch::threads(s.count(), 256), stream, &params) }
    })
}

/// The sources of this family, for checking that they compile.
pub(crate) fn sources() -> Vec<SourceText> {
    let units = [1, 2, 4, 8].into_iter();
    units.flat_map(|unit| [DType::I64, DType::U32].map(|index| GATHER.listed(Variant::new(&[index], unit), ""))).collect()
}
