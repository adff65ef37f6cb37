//! Devices and operands for tests: numbers go in and come out as f64, whatever the element type.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod calls;

use half::{bf16, f16};
use kiln_alloc::sources::{CudaSource, HostSource};
use kiln_alloc::{Allocator, Block, Category, Read, Stream, Write, download, upload};
use kiln_kernels::cuda::Cuda;
use kiln_kernels::{Arg, Backend, DType, Element, Kernel, Layout, OutArg, Result, Scalar};
use std::sync::Arc;

pub const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

pub struct Device {
    allocator: Allocator,
    pub backend: Backend,
    pub cuda: Option<Arc<Cuda>>,
}

/// Elements in a block of a device.
pub struct Data {
    pub block: Block,
    pub dtype: DType,
    pub layout: Layout,
}

impl Data {
    pub fn arg<'a>(&'a self, token: &'a Read<'a>) -> Arg<'a> {
        Arg::new(token, self.dtype, &self.layout)
    }
    pub fn out<'a>(&'a self, token: &'a mut Write<'_>) -> OutArg<'a> {
        OutArg::new(token, self.dtype, &self.layout)
    }
}

impl Device {
    pub fn cpu() -> Device {
        let allocator = Allocator::new(Arc::new(HostSource::new().unwrap()), Default::default()).unwrap();
        Device { allocator, backend: Backend::Cpu, cuda: None }
    }
    pub fn cuda() -> Device {
        let allocator = Allocator::new(Arc::new(CudaSource::new(0).unwrap()), Default::default()).unwrap();
        let cuda = Arc::new(Cuda::new(0, &allocator).unwrap());
        Device { allocator, backend: Backend::Cuda(cuda.clone()), cuda: Some(cuda) }
    }
    pub fn stream(&self) -> &Stream {
        self.allocator.compute_stream()
    }

    /// Contiguous elements.
    pub fn dense(&self, dtype: DType, dims: &[usize], values: &[f64]) -> Data {
        self.strided(dtype, Layout::contiguous(dims), values)
    }
    /// Elements of any layout, given in row-major order of its dims; what lies between them is made of 7s.
    pub fn strided(&self, dtype: DType, layout: Layout, values: &[f64]) -> Data {
        assert_eq!(values.len(), layout.elements());
        let mut all = vec![7.0; layout.extent()];
        for (i, place) in places(&layout).into_iter().enumerate() {
            all[place] = values[i];
        }
        let bytes = encode(dtype, &all);
        let block = self.allocator.allocate(bytes.len(), self.stream(), Category::Temporaries).unwrap();
        upload(&bytes, &mut block.write(self.stream()).unwrap(), 0).unwrap();
        Data { block, dtype, layout }
    }
    /// Contiguous elements that a kernel must overwrite.
    pub fn fresh(&self, dtype: DType, dims: &[usize]) -> Data {
        self.dense(dtype, dims, &vec![99.0; dims.iter().product()])
    }
    /// Contiguous elements of no value.
    pub fn blank(&self, dtype: DType, dims: &[usize]) -> Data {
        let layout = Layout::contiguous(dims);
        let block = self.allocator.allocate(layout.elements() * dtype.size(), self.stream(), Category::Temporaries).unwrap();
        Data { block, dtype, layout }
    }
    /// The elements, in row-major order.
    pub fn read(&self, data: &Data) -> Vec<f64> {
        let (first, size) = (data.layout.offset().min(data.layout.extent()), data.dtype.size());
        let mut bytes = vec![0; (data.layout.extent() - first) * size];
        download(&data.block.read(self.stream()).unwrap(), first * size, &mut bytes).unwrap();
        let all = decode(data.dtype, &bytes);
        places(&data.layout).into_iter().map(|place| all[place - first]).collect()
    }
    /// Runs a kernel with the workspace it asks for.
    pub fn run(&self, kernel: impl Kernel) -> Result<()> {
        let bytes = if self.backend.wants_workspace() { kernel.workspace_bytes() } else { 0 };
        if bytes == 0 {
            return self.backend.run(kernel, self.stream(), None);
        }
        let block = self.allocator.allocate(bytes, self.stream(), Category::Workspace)?;
        self.backend.run(kernel, self.stream(), Some(&mut block.write(self.stream())?))
    }
}

/// Where the elements of a layout lie, in row-major order of its dims.
pub fn places(layout: &Layout) -> Vec<usize> {
    let mut places = if layout.elements() == 0 { vec![] } else { vec![layout.offset()] };
    for (&size, &stride) in layout.dims().iter().zip(layout.strides()) {
        places = places.iter().flat_map(|place| (0..size).map(move |i| place + i * stride)).collect();
    }
    places
}

fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    fn of<T: Element>(values: &[f64]) -> Vec<u8> {
        let scalar = |v: f64| if T::DTYPE.is_float() { Scalar::Float(v) } else { Scalar::Int(v as i64) };
        bytemuck::cast_slice(&values.iter().map(|&v| T::from_scalar(scalar(v))).collect::<Vec<T>>()).to_vec()
    }
    match dtype {
        DType::F64 => of::<f64>(values),
        DType::F32 => of::<f32>(values),
        DType::F16 => of::<f16>(values),
        DType::BF16 => of::<bf16>(values),
        DType::I64 => of::<i64>(values),
        DType::U32 => of::<u32>(values),
        DType::U8 => of::<u8>(values),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn of<T: Element>(bytes: &[u8]) -> Vec<f64> {
        bytes.chunks_exact(size_of::<T>()).map(|b| bytemuck::pod_read_unaligned::<T>(b).to_scalar().to_f64()).collect()
    }
    match dtype {
        DType::F64 => of::<f64>(bytes),
        DType::F32 => of::<f32>(bytes),
        DType::F16 => of::<f16>(bytes),
        DType::BF16 => of::<bf16>(bytes),
        DType::I64 => of::<i64>(bytes),
        DType::U32 => of::<u32>(bytes),
        DType::U8 => of::<u8>(bytes),
    }
}

/// Values as an element type holds them.
pub fn rounded(dtype: DType, values: &[f64]) -> Vec<f64> {
    decode(dtype, &encode(dtype, values))
}

/// `n` numbers in [-2, 2), the same every time, as `dtype` holds them; whole numbers from 0 to 99 for integers.
pub fn numbers(dtype: DType, n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let values: Vec<f64> = (0..n).map(|_| if dtype.is_float() { next() * 4.0 - 2.0 } else { (next() * 100.0).floor() }).collect();
    rounded(dtype, &values)
}

/// How far results of a type may be from the exact ones, ‖out − ref‖ / ‖ref‖, where `k` elements are summed up.
pub fn tolerance(dtype: DType, k: usize) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => (4.0 * (k as f64).sqrt() * 2f64.powi(-24)).max(1e-6),
        DType::F16 => 1e-3,
        DType::BF16 => 1e-2,
        _ => 0.0,
    }
}

/// Panics where values are farther from the wanted than `tolerance`, or NaN or infinite at other places.
#[track_caller]
pub fn close(values: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(values.len(), wanted.len(), "{what}: number of values");
    let (mut error, mut norm) = (0.0, 0.0);
    for (i, (&v, &w)) in values.iter().zip(wanted).enumerate() {
        if w.is_finite() {
            assert!(v.is_finite(), "{what}: [{i}] is {v}, not {w}");
            error += (v - w) * (v - w);
            norm += w * w;
        } else {
            assert!(v == w || v.is_nan() && w.is_nan(), "{what}: [{i}] is {v}, not {w}");
        }
    }
    assert!(error.sqrt() <= tolerance * f64::sqrt(norm), "{what}: off by {:e} of {:e}", error.sqrt(), f64::sqrt(norm));
}
