//! `y = x` with `y[part] = src`. `dx` is `dy` with zeros in the part, `dsrc` is `dy[part]`, summed where `src` was broadcast.

use super::narrow::Slice;
use crate::op::{Autocast, BackwardContext, InputGrads, Op, OutputGrads, Outputs};
use crate::saved::SavedTensors;
use crate::{Error, Result, Shape, Tensor, exec};
use kiln_kernels::copy::{Copy, Fill};
use kiln_kernels::{Arg, OutArg};
use smallvec::smallvec;

/// Inputs: the whole, and what takes the place of the part.
pub(crate) struct Assign {
    pub(crate) part: Slice,
    pub(crate) src: Shape,
}

impl Op for Assign {
    fn name(&self) -> &'static str {
        "slice_assign"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (x, src) = (&inputs[0], &inputs[1]);
        if x.dtype() != src.dtype() {
            let message = format!("operands have types {} and {}; convert one with `to_dtype`", x.dtype(), src.dtype());
            return Err(Error::dtype("slice_assign", message));
        }
        let out = exec::copy_of(x)?;
        let part = self.part.part(out.layout());
        let view = exec::broadcast_view("slice_assign", src, &Shape::from(part.dims()))?;
        let stream = x.device().stream();
        let read = src.storage().read(&stream)?;
        let mut token = out.storage().write_new(&stream)?;
        let to = OutArg::new(&mut token, x.dtype(), &part);
        x.device().run(Copy { x: Arg::new(&read, src.dtype(), &view), out: to }, &stream)?;
        drop(token);
        Ok(out.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        let mut result: InputGrads = smallvec![None, None];
        if ctx.needs(0) {
            let dx = exec::copy_of(&g)?;
            let stream = g.device().stream();
            let mut token = dx.storage().write_new(&stream)?;
            let part = self.part.part(dx.layout());
            g.device().run(Fill { value: 0i64.into(), out: OutArg::new(&mut token, g.dtype(), &part) }, &stream)?;
            drop(token);
            result[0] = Some(dx);
        }
        if ctx.needs(1) {
            result[1] = Some(g.with_layout(self.part.part(g.layout())).sum_to(&self.src)?);
        }
        Ok(result)
    }
    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Index, IndexOp, Result, Tensor};

    #[test]
    fn the_part_is_taken_from_the_source_and_the_whole_is_left_alone() -> Result<()> {
        let d = Device::cpu();
        let x = Tensor::zeros((2, 4), DType::I64, &d)?;
        let src = Tensor::from_vec(vec![1i64, 2], (2, 1), &d)?;
        assert_eq!(x.slice_assign((.., Index::step(1.., 2)), &src)?.to_vec2::<i64>()?, [[0, 1, 0, 1], [0, 2, 0, 2]]);
        assert_eq!(x.t()?.slice_assign(-1, &src.squeeze(1)?)?.to_vec2::<i64>()?, [[0, 0], [0, 0], [0, 0], [1, 2]]);
        assert_eq!(x.to_vec::<i64>()?, [0; 8]);
        let e = x.slice_assign(0, &Tensor::zeros(3, DType::I64, &d)?).unwrap_err().to_string();
        assert!(e.starts_with("slice_assign") && e.contains("[3]"), "{e}");
        assert!(x.slice_assign(2, &src).is_err() && x.slice_assign(0, &Tensor::zeros((), DType::F32, &d)?).is_err());
        Ok(())
    }
}
