//! Changes in place, by methods that end in `_`. They are not recorded: while gradients are on, they are errors for whatever has to do with gradients,
//! and inside `no_grad` they grow the version of the memory, so that a backward that saved the old values notices.

use crate::ops::compare::check_holds;
use crate::{Error, Layout, Result, Scalar, Tensor, exec, modes};
use kiln_kernels::copy::{Copy, Fill};
use kiln_kernels::elementwise::row;
use kiln_kernels::{Arg, OutArg};
use std::sync::Arc;

/// Whether several elements lie in one place, as in expanded tensors and overlapping windows: a dim steps no farther than those with smaller steps reach.
fn overlaps(layout: &Layout) -> bool {
    let dims = layout.strides().iter().zip(layout.dims());
    let mut dims: Vec<(usize, usize)> = dims.map(|(&stride, &size)| (stride, size)).filter(|&(_, size)| size > 1).collect();
    dims.sort_unstable();
    let mut reach = 0;
    let meets = |(stride, size): (usize, usize)| {
        let meets = stride <= reach;
        reach += stride * (size - 1);
        meets
    };
    layout.elements() > 0 && dims.into_iter().any(meets)
}

impl Tensor {
    /// An error where this tensor must not be changed in place now.
    fn check_writable(&self, op: &'static str) -> Result<()> {
        if modes::is_grad_enabled() && (self.tracked() || self.storage().is_leaf()) {
            let what = if self.tracked() { "has a history" } else { "shares the memory of a leaf" };
            return Err(Error::Autograd(format!(
                "{op}: {self:?} {what}, and changes in place are not recorded; do it inside `no_grad`"
            )));
        }
        if overlaps(self.layout()) {
            let message = format!(
                "shape {} is broadcast or unfolded: several of its elements lie in one place; make a `copy` first",
                self.shape()
            );
            return Err(Error::shape(op, message));
        }
        Ok(())
    }

    /// `source` as this tensor can be changed by it: in memory of its own.
    #[track_caller]
    fn check_source(&self, op: &'static str, source: &Tensor) -> Result<Tensor> {
        if modes::is_grad_enabled() && source.tracked() {
            let message = format!(
                "{op}: {source:?} wants a gradient, which a change in place would lose; use the op that makes a new tensor, or `detach` it"
            );
            return Err(Error::Autograd(message));
        }
        if source.device() != self.device() {
            let message = format!("operands lie on {} and {}; move one with `to_device`", self.device(), source.device());
            return Err(Error::Device { op, message });
        }
        exec::broadcast_view(op, source, &self.shape())?;
        if Arc::ptr_eq(self.storage(), source.storage()) {
            exec::copy_as(op, source, source.dtype()).map_err(|e| e.in_op(op))
        } else {
            Ok(source.detach())
        }
    }

    fn combine(&self, op: &'static str, row_name: &str, params: [f64; 2], others: &[&Tensor]) -> Result<()> {
        let row = row(row_name);
        if let Some(other) = others.iter().find(|t| t.dtype() != self.dtype()) {
            let message = format!("operands have types {} and {}; convert one with `to_dtype`", self.dtype(), other.dtype());
            return Err(Error::dtype(op, message));
        }
        if !self.dtype().is_float() && !row.integers {
            return Err(Error::dtype(op, format!("not defined for {}", self.dtype())));
        }
        exec::map_in_place(op, row, params, self, others).map_err(|e| e.in_op(op))
    }

    /// `x = x + other`; `other` broadcasts to this shape.
    ///
    /// # Errors
    /// While gradients are on: where this tensor has a history or shares the memory of a leaf, or `other` wants a gradient. Where this tensor is
    /// broadcast; where types, shapes or devices do not fit.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f32, 2.0], 2, &Device::cpu())?;
    /// x.add_(&x)?;
    /// assert_eq!(x.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn add_(&self, other: &Tensor) -> Result<()> {
        self.check_writable("add_")?;
        self.combine("add_", "add", [0.0; 2], &[&self.check_source("add_", other)?])
    }
    /// `x = x - other`. Rules and errors as for [`Tensor::add_`].
    #[track_caller]
    pub fn sub_(&self, other: &Tensor) -> Result<()> {
        self.check_writable("sub_")?;
        self.combine("sub_", "sub", [0.0; 2], &[&self.check_source("sub_", other)?])
    }
    /// `x = x * other`. Rules and errors as for [`Tensor::add_`].
    #[track_caller]
    pub fn mul_(&self, other: &Tensor) -> Result<()> {
        self.check_writable("mul_")?;
        self.combine("mul_", "mul", [0.0; 2], &[&self.check_source("mul_", other)?])
    }
    /// `x = x + alpha * other`, floats only. Rules and errors as for [`Tensor::add_`].
    #[track_caller]
    pub fn add_scaled_(&self, other: &Tensor, alpha: f64) -> Result<()> {
        const OP: &str = "add_scaled_";
        self.check_writable(OP)?;
        let other = self.check_source(OP, other)?;
        if !self.dtype().is_float() {
            return Err(Error::dtype(OP, format!("not defined for {}", self.dtype())));
        }
        self.combine(OP, "add_scaled", [alpha, 0.0], &[&other])
    }
    /// One value everywhere, converted to the element type. Rules and errors as for [`Tensor::add_`].
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<()> {
        self.fill_in_place("fill_", value.into())
    }
    /// Zeros everywhere. Rules and errors as for [`Tensor::add_`].
    pub fn zero_(&self) -> Result<()> {
        self.fill_in_place("zero_", Scalar::Int(0))
    }
    fn fill_in_place(&self, op: &'static str, value: Scalar) -> Result<()> {
        self.check_writable(op)?;
        check_holds(op, value, self.dtype())?;
        let stream = self.device().stream();
        let mut token = self.storage().write(&stream, op)?;
        let out = OutArg::new(&mut token, self.dtype(), self.layout());
        self.device().run(Fill { value, out }, &stream).map_err(|e| e.in_op(op))
    }
    /// The elements of `other`, converted to this element type. Rules and errors as for [`Tensor::add_`], but types may differ.
    #[track_caller]
    pub fn copy_(&self, other: &Tensor) -> Result<()> {
        self.check_writable("copy_")?;
        let other = self.check_source("copy_", other)?;
        let view = exec::broadcast_view("copy_", &other, &self.shape())?;
        let stream = self.device().stream();
        let read = other.storage().read(&stream)?;
        let mut token = self.storage().write(&stream, "copy_")?;
        let out = OutArg::new(&mut token, self.dtype(), self.layout());
        self.device().run(Copy { x: Arg::new(&read, other.dtype(), &view), out }, &stream).map_err(|e| e.in_op("copy_"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes::no_grad;
    use crate::{DType, Device};

    fn x() -> Result<Tensor> {
        Tensor::from_vec((0..6).map(f64::from).collect(), (2, 3), &Device::cpu())
    }

    #[test]
    fn changes_views_and_grows_the_version() -> Result<()> {
        let x = x()?;
        let version = x.storage().version();
        x.narrow(1, 1, 2)?.add_(&Tensor::from_vec(vec![10.0, 20.0], (2, 1), &Device::cpu())?)?;
        assert_eq!(x.to_vec::<f64>()?, [0., 11., 12., 3., 24., 25.]);
        x.t()?.narrow(0, 0, 1)?.fill_(-1)?;
        assert_eq!(x.to_vec::<f64>()?, [-1., 11., 12., -1., 24., 25.]);
        x.add_scaled_(&x.ones_like()?, -0.5)?;
        x.mul_(&Tensor::scalar(2f64, &Device::cpu())?)?;
        assert_eq!(x.to_vec::<f64>()?, [-3., 21., 23., -3., 47., 49.]);
        assert_eq!(x.storage().version(), version + 4);
        x.zero_()?;
        assert_eq!(x.to_vec::<f64>()?, [0.0; 6]);
        Ok(())
    }

    #[test]
    fn copies_convert_and_broadcast() -> Result<()> {
        let x = x()?;
        x.copy_(&Tensor::from_vec(vec![7i64, 8, 9], 3, &Device::cpu())?)?;
        assert_eq!(x.to_vec::<f64>()?, [7., 8., 9., 7., 8., 9.]);
        Ok(())
    }

    #[test]
    fn the_same_memory_on_both_sides_is_right() -> Result<()> {
        let x = Tensor::from_vec(vec![1f32, 2., 3., 4.], (2, 2), &Device::cpu())?;
        x.add_(&x.t()?)?;
        assert_eq!(x.to_vec::<f32>()?, [2., 5., 5., 8.]);
        x.sub_(&x)?;
        assert_eq!(x.to_vec::<f32>()?, [0.; 4]);
        Ok(())
    }

    #[test]
    fn what_cannot_be_right_is_an_error() -> Result<()> {
        let x = x()?;
        assert!(x.narrow(0, 0, 1)?.expand((2, 3))?.zero_().is_err(), "broadcast destination");
        let windows = x.flatten_all()?.unfold(0, 3, 2)?;
        assert!(windows.zero_().is_err() && windows.narrow(0, 0, 1)?.add_(&windows.ones_like()?.narrow(0, 0, 1)?).is_ok());
        x.sub_(&Tensor::from_vec(vec![1., 1., 1., 0., 0., 0.], (2, 3), &Device::cpu())?)?;
        assert!(x.narrow(0, 0, 1)?.add_(&x).is_err(), "source larger than destination");
        assert!(x.add_(&x.to_dtype(DType::F32)?).is_err(), "types");
        assert!(x.to_dtype(DType::U8)?.fill_(0.5).is_err(), "a number the type does not hold");
        assert_eq!(x.to_vec::<f64>()?, [0., 1., 2., 3., 4., 5.]);
        Ok(())
    }

    #[test]
    fn what_has_to_do_with_gradients_changes_inside_no_grad_only() -> Result<()> {
        let x = x()?;
        let view = no_grad(|| x.narrow(0, 0, 1))?;
        let leaf = x.requires_grad()?;
        for target in [&leaf, &view, &leaf.neg()?] {
            assert!(matches!(target.zero_(), Err(Error::Autograd(_))));
        }
        let plain = leaf.zeros_like()?;
        assert!(matches!(plain.add_(&leaf), Err(Error::Autograd(_))));
        no_grad(|| plain.add_(&leaf).and_then(|_| view.zero_()))?;
        assert_eq!(leaf.to_vec::<f64>()?, [0., 0., 0., 3., 4., 5.]);
        Ok(())
    }
}
