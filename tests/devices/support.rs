//! What cases share: their list, numbers, operands in several layouts, and comparison by norm.

use kiln::tensor::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs};
use kiln::tensor::saved::SavedTensors;
use kiln::{DType, Device, Error, Result, Shape, Tensor};

/// Where a case makes sense.
#[derive(Clone, Copy, PartialEq)]
pub enum Where {
    Everywhere,
    /// On CUDA devices with so many bytes.
    Cuda {
        bytes: usize,
    },
}

/// A named function of a device.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub place: Where,
    pub run: fn(&Device) -> Result<()>,
}

/// The list of a module's cases, named after their functions; behind `cuda` those for CUDA devices of some size alone.
macro_rules! cases {
    ($($run:ident),* $(; cuda with $bytes:expr => $only:ident)? $(,)?) => {
        pub fn cases() -> Vec<$crate::support::Case> {
            use $crate::support::{Case, Where};
            vec![
                $(Case { name: concat!(module_path!(), "::", stringify!($run)), place: Where::Everywhere, run: $run },)*
                $(Case { name: concat!(module_path!(), "::", stringify!($only)), place: Where::Cuda { bytes: $bytes }, run: $only },)?
            ]
        }
    };
}
pub(crate) use cases;

pub const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// `n` numbers in [lo, hi), the same every time (multiples of the golden ratio, so none repeats soon).
pub fn spread(n: usize, seed: usize, lo: f64, hi: f64) -> Vec<f64> {
    (0..n).map(|i| lo + (hi - lo) * (0.5 + (i + 7919 * seed + 1) as f64 * 0.618_033_988_749_895).fract()).collect()
}

/// `n` numbers in [-2, 2).
pub fn numbers(n: usize, seed: usize) -> Vec<f64> {
    spread(n, seed, -2.0, 2.0)
}

/// Numbers as a tensor; they are converted on the host, so that every device gets the same bits.
pub fn tensor(values: &[f64], shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
    Tensor::from_slice(values, shape, &Device::cpu())?.to_dtype(dtype)?.to_device(device)
}

/// f32 numbers as a tensor.
pub fn f32s(values: &[f64], shape: impl Into<Shape>, device: &Device) -> Result<Tensor> {
    tensor(values, shape, DType::F32, device)
}

/// f32 numbers as a leaf.
pub fn leaf(values: &[f64], shape: impl Into<Shape>, device: &Device) -> Result<Tensor> {
    f32s(values, shape, device)?.requires_grad()
}

/// The elements, whatever their type (integers beyond 2^53 round).
pub fn read(t: &Tensor) -> Result<Vec<f64>> {
    t.detach().to_device(&Device::cpu())?.to_dtype(DType::F64)?.to_vec()
}

/// The gradient of a leaf.
#[track_caller]
pub fn gradient(t: &Tensor) -> Result<Vec<f64>> {
    read(&t.grad()?.expect("the leaf has a gradient"))
}

/// The elements, bit for bit.
pub fn bits(t: &Tensor) -> Result<Vec<u64>> {
    Ok(read(t)?.into_iter().map(f64::to_bits).collect())
}

/// The same elements lying row-major, column-major, and with gaps behind an offset.
pub fn layouts(t: &Tensor) -> Result<Vec<Tensor>> {
    let reversed: Vec<usize> = (0..t.rank()).rev().collect();
    let mut all = vec![t.clone(), t.permute(&reversed)?.contiguous()?.permute(&reversed)?];
    if let Some(&n) = t.dims().last() {
        let mut one = t.dims().to_vec();
        one[t.rank() - 1] = 1;
        let pad = Tensor::full(7, one, t.dtype(), t.device())?;
        all.push(Tensor::cat(&[&pad, t, &pad], -1)?.narrow(-1, 1, n)?);
    }
    Ok(all)
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

/// Panics where `found` is farther from `wanted` than `tolerance`, or NaN or infinite at other places.
#[track_caller]
pub fn close(found: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: number of elements");
    let (mut error, mut norm) = (0.0, 0.0);
    for (i, (&f, &w)) in found.iter().zip(wanted).enumerate() {
        if w.is_finite() {
            assert!(f.is_finite(), "{what}: element {i} is {f}, not {w}");
            (error, norm) = (error + (f - w) * (f - w), norm + w * w);
        } else {
            assert!(f == w || f.is_nan() && w.is_nan(), "{what}: element {i} is {f}, not {w}");
        }
    }
    assert!(error.sqrt() <= tolerance * f64::sqrt(norm), "{what}: off by {:e} of {:e}", error.sqrt(), f64::sqrt(norm));
}

/// Every element within a relative `tolerance` of its own.
#[track_caller]
pub fn each_close(found: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(found.len(), wanted.len());
    for (f, w) in found.iter().zip(wanted) {
        assert!((f - w).abs() <= tolerance * w.abs(), "{found:?} is not {wanted:?}");
    }
}

/// Where the elements of `dims` broadcast to `to` are found, row-major.
pub fn broadcast(values: &[f64], dims: &[usize], to: &[usize]) -> Vec<f64> {
    let lead = to.len() - dims.len();
    (0..to.iter().product::<usize>())
        .map(|flat| {
            let (mut rest, mut at, mut stride) = (flat, 0, 1);
            for d in (0..to.len()).rev() {
                let i = rest % to[d];
                rest /= to[d];
                if d >= lead {
                    at += if dims[d - lead] == 1 { 0 } else { i * stride };
                    stride *= dims[d - lead];
                }
            }
            values[at]
        })
        .collect()
}

/// What a device's statistics count as live, outside of workspaces.
pub fn live(device: &Device) -> usize {
    device.memory_stats().allocated_outside_workspace()
}

/// The identity, whose backward fails.
pub struct Fails;

impl Op for Fails {
    fn name(&self) -> &'static str {
        "fails"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(inputs[0].clone().into())
    }
    fn backward(&self, _: OutputGrads, _: &mut SavedTensors, _: &BackwardContext<'_>) -> Result<InputGrads> {
        Err(Error::message("no way back"))
    }
}
