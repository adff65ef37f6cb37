//! `y = x` in another element type; `dx = dy` in the type of `x`.

use crate::op::{BackwardContext, Derivative, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Result, Tensor, exec};
use smallvec::smallvec;

struct ToDType {
    from: DType,
    to: DType,
}

impl Op for ToDType {
    fn name(&self) -> &'static str {
        "to_dtype"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(exec::copy_as("to_dtype", &inputs[0], self.to)?.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(smallvec![Some(ctx.only(grads)?.to_dtype(self.from)?)])
    }
    fn derivative(&self) -> Derivative {
        if self.to.is_float() { Derivative::Defined } else { Derivative::Discrete }
    }
}

/// A cast whose value is there already: the memory is shared by all uses of a weight at one version, the history is not.
pub(crate) struct CachedCast {
    pub(crate) from: DType,
    pub(crate) value: Tensor,
}

impl Op for CachedCast {
    fn name(&self) -> &'static str {
        "autocast"
    }
    fn forward(&self, _: &[Tensor]) -> Result<Outputs> {
        Ok(self.value.clone().into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(smallvec![Some(ctx.only(grads)?.to_dtype(self.from)?)])
    }
}

impl Tensor {
    /// The elements in another type. Floats round to nearest even; float to integer truncates toward zero and saturates, NaN becomes 0.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let x = Tensor::from_vec(vec![1.5f32, -2.0], 2, &Device::cpu())?;
    /// assert_eq!(x.to_dtype(DType::I64)?.to_vec::<i64>()?, [1, -2]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        apply(ToDType { from: self.dtype(), to: dtype }, &[self])
    }
}
