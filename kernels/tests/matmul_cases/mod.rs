//! Matrix products of every form, for any backend, against sums in f64.

use half::{bf16, f16};
use kiln_alloc::{Allocator, Block, Category, download, upload};
use kiln_kernels::matmul::MatMul;
use kiln_kernels::{Arg, Backend, DType, Element, Layout, OutArg, Scalar};

/// How a batch of matrices lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// Row-major, dense.
    Rows,
    /// Column-major, dense: a transposed view.
    Columns,
    /// Row-major, with an offset and a gap after each row: a slice of columns.
    Sliced,
    /// Row-major, one matrix for the whole batch.
    Shared,
    /// Column-major, one matrix for the whole batch.
    SharedColumns,
}

impl Form {
    pub const ALL: [Form; 5] = [Form::Rows, Form::Columns, Form::Sliced, Form::Shared, Form::SharedColumns];

    fn layout(self, batch: usize, rows: usize, cols: usize) -> Layout {
        let (strides, offset) = match self {
            Form::Rows => ([rows * cols, cols, 1], 0),
            Form::Columns => ([rows * cols, 1, rows], 0),
            Form::Sliced => ([rows * (cols + 3), cols + 3, 1], 2),
            Form::Shared => ([0, cols, 1], 0),
            Form::SharedColumns => ([0, 1, rows], 0),
        };
        Layout::new(&[batch, rows, cols], &strides, offset)
    }
}

/// One product.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub dtype: DType,
    pub out: DType,
    pub sizes: [usize; 4],
    pub a: Form,
    pub b: Form,
    pub alpha: f64,
    pub beta: f64,
    pub tf32: bool,
}

impl Case {
    /// `[batch, m, k] @ [batch, k, n]`, dense, in one type.
    pub fn new(dtype: DType, sizes: [usize; 4]) -> Case {
        Case { dtype, out: dtype, sizes, a: Form::Rows, b: Form::Rows, alpha: 1.0, beta: 0.0, tf32: false }
    }

    /// The bound on `‖out − ref‖ / ‖ref‖` for sums over `k` elements.
    fn tolerance(&self) -> f64 {
        let sums = |bits: i32| 4.0 * 2f64.powi(-bits) * (self.sizes[2] as f64).sqrt();
        match self.out {
            DType::F64 => sums(53),
            DType::F32 if self.tf32 => 1e-3,
            DType::F32 => sums(24).max(1e-6),
            DType::F16 => 1e-3,
            _ => 1e-2,
        }
    }

    /// Runs it and compares; an error says by how much it is off.
    pub fn check(&self, allocator: &Allocator, backend: &Backend) -> Result<(), String> {
        let [batch, m, k, n] = self.sizes;
        let (a_layout, b_layout) = (self.a.layout(batch, m, k), self.b.layout(batch, k, n));
        let a = numbers(self.dtype, a_layout.extent(), 1);
        let b = numbers(self.dtype, b_layout.extent(), 2);
        // What a factor of 0 ignores may be anything.
        let old = if self.beta == 0.0 { vec![f64::NAN; batch * m * n] } else { numbers(self.out, batch * m * n, 3) };
        let got = self.run(allocator, backend, &a, &b, &old).map_err(|e| e.to_string())?;

        let (mut off, mut norm) = (0.0, 0.0);
        for (index, (&got, &old)) in got.iter().zip(&old).enumerate() {
            let (i, row, col) = (index / (m * n), index / n % m, index % n);
            let sum: f64 = (0..k).map(|l| a[at(&a_layout, [i, row, l])] * b[at(&b_layout, [i, l, col])]).sum();
            let expected = self.alpha * sum + if self.beta == 0.0 { 0.0 } else { self.beta * old };
            off += (got - expected).powi(2);
            norm += expected.powi(2);
        }
        let error = if norm == 0.0 { off } else { (off / norm).sqrt() };
        // Written so that NaN fails.
        if error <= self.tolerance() { Ok(()) } else { Err(format!("{self:?} is off by {error:e}")) }
    }

    /// Runs it over the elements given, in the order of memory; returns the result as f64.
    pub fn run(
        &self,
        allocator: &Allocator,
        backend: &Backend,
        a: &[f64],
        b: &[f64],
        old: &[f64],
    ) -> kiln_kernels::Result<Vec<f64>> {
        let [batch, m, k, n] = self.sizes;
        let (a_layout, b_layout) = (self.a.layout(batch, m, k), self.b.layout(batch, k, n));
        let out_layout = Layout::contiguous(&[batch, m, n]);
        let stream = allocator.compute_stream();
        let a = block(allocator, &encode(self.dtype, a))?;
        let b = block(allocator, &encode(self.dtype, b))?;
        let out = block(allocator, &encode(self.out, old))?;
        {
            let (a, b, mut out) = (a.read(stream)?, b.read(stream)?, out.write(stream)?);
            let product = MatMul {
                a: Arg::new(&a, self.dtype, &a_layout),
                b: Arg::new(&b, self.dtype, &b_layout),
                out: OutArg::new(&mut out, self.out, &out_layout),
                alpha: self.alpha,
                beta: self.beta,
                tf32: self.tf32,
            };
            backend.run(product, stream, None)?;
        }
        let mut bytes = vec![0; out.bytes()];
        download(&out.read(stream)?, 0, &mut bytes)?;
        Ok(decode(self.out, &bytes))
    }
}

fn at(layout: &Layout, index: [usize; 3]) -> usize {
    layout.offset() + index.iter().zip(layout.strides()).map(|(i, s)| i * s).sum::<usize>()
}

fn block(allocator: &Allocator, bytes: &[u8]) -> kiln_kernels::Result<Block> {
    let stream = allocator.compute_stream();
    let block = allocator.allocate(bytes.len(), stream, Category::Temporaries)?;
    upload(bytes, &mut block.write(stream)?, 0)?;
    Ok(block)
}

/// `count` numbers in [-1, 1), each exact in `dtype`, that differ by `seed`.
pub fn numbers(dtype: DType, count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let numbers: Vec<f64> = (0..count).map(|_| next()).collect();
    decode(dtype, &encode(dtype, &numbers))
}

macro_rules! by_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            DType::BF16 => {
                type $T = bf16;
                $body
            }
            other => panic!("no float: {other}"),
        }
    };
}

fn encode(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    by_type!(dtype, T => {
        let typed: Vec<T> = numbers.iter().map(|&x| T::from_scalar(Scalar::Float(x))).collect();
        bytemuck::cast_slice(&typed).to_vec()
    })
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    // Bytes may lie anywhere, so elements are read unaligned.
    by_type!(dtype, T => bytes.chunks(size_of::<T>()).map(|x| bytemuck::pod_read_unaligned::<T>(x).to_scalar().to_f64()).collect())
}

/// Every type of operands and result.
pub const TYPES: [(DType, DType); 6] = [
    (DType::F64, DType::F64),
    (DType::F32, DType::F32),
    (DType::F16, DType::F16),
    (DType::F16, DType::F32),
    (DType::BF16, DType::BF16),
    (DType::BF16, DType::F32),
];

/// Every case, with a name.
pub fn cases() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for (dtype, out) in TYPES {
        let mut add = |what: &str, case: Case| cases.push((format!("{dtype} to {out}, {what}"), Case { out, ..case }));
        let small = [[1, 1, 1, 1], [1, 64, 128, 96], [1, 33, 70, 17], [3, 5, 7, 9], [2, 1, 40, 1], [40, 1, 8, 16]];
        // More than one tile of the CPU's 16-bit products: in rows, in columns and in depth.
        let tiled = [[1, 300, 1100, 20], [1, 20, 1100, 530], [1, 300, 20, 530]];
        for sizes in small.into_iter().chain(tiled) {
            add(&format!("{sizes:?}"), Case::new(dtype, sizes));
        }
        for a in Form::ALL {
            for b in Form::ALL {
                add(&format!("{a:?} by {b:?}"), Case { a, b, ..Case::new(dtype, [3, 20, 30, 10]) });
            }
        }
        for (alpha, beta) in [(0.5, 0.0), (1.0, 1.0), (-2.0, 0.25), (0.0, 1.0), (0.0, 0.0)] {
            add(&format!("alpha {alpha}, beta {beta}"), Case { alpha, beta, ..Case::new(dtype, [2, 20, 30, 10]) });
        }
        for sizes in [[0, 2, 3, 4], [2, 0, 3, 4], [2, 2, 3, 0], [2, 2, 0, 4]] {
            add(&format!("{sizes:?}"), Case::new(dtype, sizes));
        }
        for beta in [0.5, 1.0] {
            add(&format!("no sums, beta {beta}"), Case { beta, ..Case::new(dtype, [2, 3, 0, 4]) });
        }
    }
    cases
}
