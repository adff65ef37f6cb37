//! Making tensors.

use crate::{DType, Device, Element, Error, Result, Scalar, Shape, Tensor, exec, random};
use kiln_kernels::copy::{Arange, Eye, Fill};
use kiln_kernels::random::{Normal, RandInt, Uniform};

impl Tensor {
    /// All zeros.
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        Tensor::filled("zeros", 0i64.into(), shape.into(), dtype, device)
    }
    /// All ones.
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        Tensor::filled("ones", 1i64.into(), shape.into(), dtype, device)
    }
    /// One value everywhere, converted to the element type.
    #[track_caller]
    pub fn full(value: impl Into<Scalar>, shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        Tensor::filled("full", value.into(), shape.into(), dtype, device)
    }
    #[track_caller]
    fn filled(op: &'static str, value: Scalar, shape: Shape, dtype: DType, device: &Device) -> Result<Tensor> {
        if shape.is_empty() {
            return exec::nothing(&shape, dtype, device);
        }
        exec::fill_new(op, &shape, dtype, device, |out, stream| device.run(Fill { value, out }, stream)).map_err(|e| e.in_op(op))
    }
    /// Zeros in the shape, type and place of this one.
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        Tensor::zeros(self.shape(), self.dtype(), self.device())
    }
    /// Ones in the shape, type and place of this one.
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        Tensor::ones(self.shape(), self.dtype(), self.device())
    }

    /// `start, start + step, ..` up to and without `end`: `ceil((end - start) / step)` elements, each computed as `start + i * step` (in f64, in i64
    /// for integer types).
    ///
    /// # Errors
    /// Where `step` is 0, points away from `end` (unless they are equal), or a number is not finite.
    #[track_caller]
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let n = match (start, end, step) {
            (Scalar::Int(a), Scalar::Int(b), Scalar::Int(s)) if s != 0 => {
                let (span, s) = (b as i128 - a as i128, s as i128);
                (span / s + i128::from(span % s != 0 && (span < 0) == (s < 0))) as f64
            }
            _ => ((end.to_f64() - start.to_f64()) / step.to_f64()).ceil(),
        };
        let n = if start.to_f64() == end.to_f64() && step.to_f64() != 0.0 { 0.0 } else { n };
        if !(0.0..9e15).contains(&n) {
            let message = format!("no range leads from {} to {} by {}", start.to_f64(), end.to_f64(), step.to_f64());
            return Err(Error::argument("arange", message));
        }
        exec::fill_new("arange", &Shape::from(n as usize), dtype, device, |out, stream| {
            device.run(Arange { start, step, out }, stream)
        })
        .map_err(|e| e.in_op("arange"))
    }
    /// The identity matrix of `n` rows.
    #[track_caller]
    pub fn eye(n: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        exec::fill_new("eye", &Shape::from((n, n)), dtype, device, |out, stream| device.run(Eye { out }, stream))
            .map_err(|e| e.in_op("eye"))
    }

    /// Uniform numbers in [0, 1), from the device's generator.
    #[track_caller]
    pub fn rand(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        Tensor::rand_range(0.0, 1.0, shape, dtype, device)
    }
    /// Uniform numbers in [lo, hi), from the device's generator; `lo` where the two are equal.
    ///
    /// # Errors
    /// Where `hi` lies below `lo`, or their distance is not finite.
    #[track_caller]
    pub fn rand_range(lo: f64, hi: f64, shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        let shape = shape.into();
        float_type("rand", dtype)?;
        let range = hi - lo;
        // 16-bit types are computed in f32.
        let finite = range.is_finite() && (dtype == DType::F64 || (range as f32).is_finite());
        if !(lo <= hi && finite) {
            return Err(Error::argument("rand", format!("{lo} to {hi} is no range of finite length for {dtype}")));
        }
        let at = random::draw(device, shape.checked_elements("rand", dtype)?)?;
        exec::fill_new("rand", &shape, dtype, device, |out, stream| {
            device.run(Uniform { seed: at.seed, offset: at.offset, lo, hi, out }, stream)
        })
        .map_err(|e| e.in_op("rand"))
    }
    /// Normal numbers of mean 0 and deviation 1, from the device's generator.
    #[track_caller]
    pub fn randn(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        Tensor::normal(0.0, 1.0, shape, dtype, device)
    }
    /// Normal numbers, from the device's generator.
    #[track_caller]
    pub fn normal(mean: f64, std: f64, shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        let shape = shape.into();
        float_type("randn", dtype)?;
        let at = random::draw(device, shape.checked_elements("randn", dtype)?)?;
        exec::fill_new("randn", &shape, dtype, device, |out, stream| {
            device.run(Normal { seed: at.seed, offset: at.offset, mean, std, out }, stream)
        })
        .map_err(|e| e.in_op("randn"))
    }
    /// Whole numbers in [lo, hi) as i64, from the device's generator. `hi - lo` is at least 1 and at most 2^32.
    #[track_caller]
    pub fn randint(lo: i64, hi: i64, shape: impl Into<Shape>, device: &Device) -> Result<Tensor> {
        let shape = shape.into();
        if !(1..=1i128 << 32).contains(&(hi as i128 - lo as i128)) {
            return Err(Error::argument("randint", format!("the range {lo}..{hi} must hold 1 to 2^32 numbers")));
        }
        let at = random::draw(device, shape.checked_elements("randint", DType::I64)?)?;
        exec::fill_new("randint", &shape, DType::I64, device, |out, stream| {
            device.run(RandInt { seed: at.seed, offset: at.offset, lo, hi, out }, stream)
        })
        .map_err(|e| e.in_op("randint"))
    }

    /// The elements of a vector, row-major, on a device.
    ///
    /// # Errors
    /// Where the vector is not as long as the shape says.
    #[track_caller]
    pub fn from_vec<T: Element>(data: Vec<T>, shape: impl Into<Shape>, device: &Device) -> Result<Tensor> {
        Tensor::from_slice(&data, shape, device)
    }
    /// The elements of a slice, row-major, copied to a device.
    ///
    /// # Errors
    /// Where the slice is not as long as the shape says.
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>, device: &Device) -> Result<Tensor> {
        let shape = shape.into();
        if shape.is_empty() && data.is_empty() {
            return exec::nothing(&shape, T::DTYPE, device);
        }
        let n = shape.checked_elements("from_slice", T::DTYPE)?;
        if n != data.len() {
            return Err(Error::shape("from_slice", format!("shape {shape} has {n} elements, the data {}", data.len())));
        }
        let out = exec::empty("from_slice", &shape, T::DTYPE, device).map_err(|e| e.in_op("from_slice"))?;
        let stream = device.stream();
        kiln_alloc::upload(bytemuck::cast_slice(data), &mut out.storage().write_new(&stream)?, 0)?;
        Ok(out)
    }
    /// One number, with no dims.
    #[track_caller]
    pub fn scalar<T: Element>(value: T, device: &Device) -> Result<Tensor> {
        Tensor::from_slice(&[value], (), device)
    }
}

fn float_type(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_float() { Ok(()) } else { Err(Error::dtype(op, format!("random floats cannot have type {dtype}"))) }
}
