//! `y = x / (1 - p)` for the elements that are kept, 0 for a share `p` of them; `dx = dy` under the same mask. The mask is a position in the
//! device's generator: nothing is saved.

use crate::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::random::{self, Position};
use crate::saved::SavedTensors;
use crate::{Error, Result, Tensor, exec, modes};
use kiln_kernels::{Arg, random as kernels};
use smallvec::smallvec;

const NAME: &str = "dropout";

struct Dropout {
    p: f64,
    at: Position,
}

impl Dropout {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let x = exec::contiguous(x)?;
        exec::fill_new(NAME, &x.shape(), x.dtype(), x.device(), |out, stream| {
            let token = x.storage().read(stream)?;
            let x_arg = Arg::new(&token, x.dtype(), x.layout());
            x.device().run(kernels::Dropout { x: x_arg, p: self.p, seed: self.at.seed, offset: self.at.offset, out }, stream)
        })
    }
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        NAME
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(self.run(&inputs[0])?.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(smallvec![Some(self.run(&ctx.only(grads)?)?)])
    }
}

impl Tensor {
    /// In training mode zeros with probability `p` and `x / (1 - p)` elsewhere, from the device's generator; in evaluation mode, or where `p` is 0,
    /// `x` itself, and the generator stays where it is. `p == 1` gives zeros.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType, modes};
    /// let x = Tensor::ones(1000, DType::F32, &Device::cpu())?;
    /// let kept = x.dropout(0.25)?.sum_all()?.to_scalar::<f32>()? * 0.75;
    /// assert!((650.0..850.0).contains(&kept));
    /// assert_eq!(modes::eval(|| x.dropout(0.25))?.to_vec::<f32>()?, x.to_vec::<f32>()?);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where `p` is not within 0 and 1, or the type is no float.
    #[track_caller]
    pub fn dropout(&self, p: f64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::argument(NAME, format!("probability {p} is not within 0 and 1")));
        }
        if !self.dtype().is_float() {
            return Err(Error::dtype(NAME, format!("not defined for {}; convert to a float type with `to_dtype`", self.dtype())));
        }
        if p == 0.0 || !modes::is_training() {
            return Ok(self.clone());
        }
        let at = random::draw(self.device(), self.elem_count())?;
        apply(Dropout { p, at }, &[self])
    }
}
