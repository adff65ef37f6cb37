//! Launching kernels of `cuda/map.cuh`: one output element from the input elements at the same place, over any layouts.

use super::collapse::{Collapsed, Meta};
use super::{Cuda, Function, Launch, Source, Value, Variant, param};
use crate::{Arg, DType, Layout, OutArg, Result};
use kiln_alloc::Stream;
use smallvec::SmallVec;

/// The most operands, destination included.
pub(super) const OPERANDS: usize = 5;
const BLOCK: u32 = 256;

/// One of the kernels of a map, by what layouts it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All operands contiguous and aligned.
    Vector,
    /// The last dim contiguous or broadcast, and aligned.
    Inner,
    /// Any layout.
    Strided,
    /// Any layout, indices beyond 31 bits.
    Wide,
}

impl Kind {
    const ALL: [(Kind, &'static str, &'static str); 4] = [
        (Kind::Vector, "MAP_VECTOR", "vector"),
        (Kind::Inner, "MAP_INNER", "inner"),
        (Kind::Strided, "MAP_STRIDED", "strided"),
        (Kind::Wide, "MAP_WIDE", "wide"),
    ];
}

/// What is computed: a functor of a source that includes `map.cuh`. Its operands have the types `T0` (destination), `T1`, ..
#[derive(Clone, Copy)]
pub(crate) struct Functor<'a> {
    pub source: &'static Source,
    /// Tells it from the other functors of its source.
    pub id: u32,
    /// Its name in CUDA C++.
    pub name: &'a str,
    /// Makes the text that defines it, where the source does not.
    pub text: fn(u32) -> String,
}

/// No text: the source defines the functor.
pub(crate) fn no_text(_: u32) -> String {
    String::new()
}

/// An operand as a kernel sees it.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub address: u64,
    pub dtype: DType,
    pub layout: &'a Layout,
}

impl<'a> Operand<'a> {
    /// A destination.
    pub fn output(out: &OutArg<'a>) -> Operand<'a> {
        Operand { address: out.address(), dtype: out.dtype, layout: out.layout }
    }
    /// An input.
    pub fn input(x: &Arg<'a>) -> Operand<'a> {
        Operand { address: x.address(), dtype: x.dtype, layout: x.layout }
    }
    /// The same, of a type that stands for its bits.
    pub fn bits(self) -> Operand<'a> {
        Operand { dtype: bits_type(self.dtype), ..self }
    }
    fn is_aligned(&self, elements: usize) -> bool {
        self.address.is_multiple_of((elements * self.dtype.size()) as u64)
    }
}

/// The type that stands for all of its size where only bits are moved.
pub(crate) fn bits_type(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::F16,
        4 => DType::U32,
        _ => DType::I64,
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Pointers([u64; OPERANDS]);
// SAFETY: numbers only, laid out as its namesake in `map.cuh`.
unsafe impl Value for Pointers {}

/// Text that makes the kernels of a functor over `T0, T1, ..`, `inputs` of them inputs; all four, as `NAME_vector` and so on.
pub(crate) fn all_kernels(functor: &str, name: &str, inputs: usize) -> String {
    Kind::ALL.iter().map(|(_, mark, suffix)| kernel(mark, &format!("{name}_{suffix}"), functor, inputs)).collect()
}

/// Text that makes one kernel of a functor, as `NAME_vector`: enough to compile it.
pub(crate) fn vector_kernel(functor: &str, name: &str, inputs: usize) -> String {
    kernel("MAP_VECTOR", &format!("{name}_vector"), functor, inputs)
}

fn kernel(mark: &str, name: &str, functor: &str, inputs: usize) -> String {
    let types: String = (1..=inputs.max(1)).map(|i| format!(", T{}", if inputs == 0 { 0 } else { i })).collect();
    format!("{mark}({name}, {functor}, T0, {inputs}{types})\n")
}

impl Cuda {
    /// Enqueues `out[i] = functor(inputs[i].., params)`. All layouts have the dims of the destination.
    ///
    /// # Safety
    /// Addresses come from tokens that are alive: the destination may be written and the inputs read. The destination's elements are
    /// distinct; an input may be the destination itself.
    pub(crate) unsafe fn map(
        &self,
        functor: Functor<'_>,
        params: [f64; 2],
        out: Operand<'_>,
        inputs: &[Operand<'_>],
        stream: &Stream,
    ) -> Result<()> {
        let n = out.layout.elements();
        if n == 0 {
            return Ok(());
        }
        let operands: SmallVec<[Operand<'_>; OPERANDS]> = std::iter::once(out).chain(inputs.iter().copied()).collect();
        let widest = operands.iter().map(|o| o.dtype.size()).max().unwrap_or(16);
        let pack = 16 / widest;
        let mut pointers = Pointers([0; OPERANDS]);
        operands.iter().zip(&mut pointers.0).for_each(|(o, p)| *p = o.address);

        let (count, [p, q]) = (n as u64, params);
        let head = [param(&pointers), param(&count), param(&p), param(&q)];
        if operands.iter().all(|o| o.layout.is_contiguous() && o.is_aligned(pack)) {
            let in_flight = if inputs.len() > 2 { 1 } else { 2 };
            let launch = Launch::blocks(n.div_ceil(BLOCK as usize * pack * in_flight), BLOCK);
            let f = self.map_kernel(functor, Kind::Vector, &operands)?;
            // SAFETY: parameters as `MAP_VECTOR` has them; the caller vouches for the addresses.
            return unsafe { self.launch(f, launch, stream, &head) };
        }
        let collapsed = Collapsed::new(&operands);
        if !collapsed.is_narrow(&operands) {
            let meta: Meta<u64> = collapsed.meta();
            let f = self.map_kernel(functor, Kind::Wide, &operands)?;
            let [pointers, count, p, q] = head;
            // SAFETY: parameters as `MAP_WIDE` has them; the caller vouches for the addresses.
            return unsafe { self.launch(f, Launch::threads(n, BLOCK), stream, &[pointers, count, p, q, param(&meta)]) };
        }
        let meta: Meta<u32> = collapsed.meta();
        let inner = collapsed.has_packed_rows(pack, |k, strided| !strided || operands[k].is_aligned(pack));
        let (kind, threads) = if inner { (Kind::Inner, n / pack) } else { (Kind::Strided, n) };
        let f = self.map_kernel(functor, kind, &operands)?;
        let [pointers, count, p, q] = head;
        // SAFETY: parameters as `MAP_INNER` and `MAP_STRIDED` have them; the caller vouches for the addresses.
        unsafe { self.launch(f, Launch::threads(threads, BLOCK), stream, &[pointers, count, p, q, param(&meta)]) }
    }

    fn map_kernel(&self, functor: Functor<'_>, kind: Kind, operands: &[Operand<'_>]) -> Result<Function> {
        let types: SmallVec<[DType; OPERANDS]> = operands.iter().map(|o| o.dtype).collect();
        let (index, mark) = (kind as usize, Kind::ALL[kind as usize].1);
        // Kernels of other kinds are other variants, so that each is compiled when it is wanted.
        let variant = Variant::new(&types, functor.id * 4 + index as u32);
        self.generated(functor.source, variant, "map", || {
            (functor.text)(functor.id) + "\n" + &kernel(mark, "map", functor.name, operands.len() - 1)
        })
    }
}
