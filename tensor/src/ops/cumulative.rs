//! Running sums and products along a dim, `y_i = x_0 + .. + x_i` and `y_i = x_0 .. x_i`. The gradient of the sum is the running sum of `dy` from the
//! back; that of the product is `dx_i = y_(i-1) S_i` with `S_i = dy_i + x_(i+1) S_(i+1)`, exact with zeros among the factors.

use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Dim, Result, Tensor, exec};
use kiln_kernels::Arg;
use kiln_kernels::scan::{ProductBackward, Running, Scan};
use smallvec::smallvec;

struct Cumulative {
    op: Running,
    dim: usize,
    from: DType,
    to: DType,
}

impl Cumulative {
    /// Products of the dims before, at and after the one walked.
    fn sizes(&self, dims: &[usize]) -> (usize, usize, usize) {
        (dims[..self.dim].iter().product(), dims[self.dim], dims[self.dim + 1..].iter().product())
    }
    fn scan(&self, op: Running, reverse: bool, x: &Tensor, to: DType) -> Result<Tensor> {
        let x = exec::contiguous(x)?;
        let (outer, n, inner) = self.sizes(x.dims());
        exec::fill_new(self.name(), &x.shape(), to, x.device(), |out, stream| {
            if x.elem_count() == 0 {
                return Ok(());
            }
            let token = x.storage().read(stream)?;
            let x_arg = Arg::new(&token, x.dtype(), x.layout());
            x.device().run(Scan { op, reverse, x: x_arg, outer, n, inner, out }, stream)
        })
    }
}

impl Op for Cumulative {
    fn name(&self) -> &'static str {
        if self.op == Running::Sum { "cumsum" } else { "cumprod" }
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(self.scan(self.op, false, &inputs[0], self.to)?.into())
    }
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        if self.op == Running::Product {
            keep.tensor(&inputs[0])?;
            keep.tensor(&outputs.results[0])?;
        }
        Ok(())
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        if self.op == Running::Sum {
            return Ok(smallvec![Some(self.scan(Running::Sum, true, &g, self.from)?)]);
        }
        let (x, y, g) = (exec::contiguous(&saved.take(0)?)?, exec::contiguous(&saved.take(1)?)?, exec::contiguous(&g)?);
        let (outer, n, inner) = self.sizes(x.dims());
        let dx = exec::fill_new(self.name(), &x.shape(), self.from, x.device(), |dx, stream| {
            if x.elem_count() == 0 {
                return Ok(());
            }
            let (xs, ys, gs) = (x.storage().read(stream)?, y.storage().read(stream)?, g.storage().read(stream)?);
            let (x_arg, y_arg) = (Arg::new(&xs, x.dtype(), x.layout()), Arg::new(&ys, y.dtype(), y.layout()));
            let g_arg = Arg::new(&gs, g.dtype(), g.layout());
            x.device().run(ProductBackward { x: x_arg, y: y_arg, g: g_arg, outer, n, inner, dx }, stream)
        })?;
        Ok(smallvec![Some(dx)])
    }
}

impl Tensor {
    #[track_caller]
    fn cumulative(&self, name: &'static str, op: Running, dim: impl Dim) -> Result<Tensor> {
        let (dim, from) = (dim.resolve(name, &self.shape())?, self.dtype());
        let to = if from.is_float() { from } else { DType::I64 };
        apply(Cumulative { op, dim, from, to }, &[self])
    }
    /// Running sums along a dim: element `i` is the sum of those up to and with `i`. Same shape and type, i64 for integers (which wrap). Floats are
    /// added up in f64 and rounded once each.
    ///
    /// # Errors
    /// For a dim that is not there.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4.], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.cumsum(-1)?.to_vec2::<f32>()?, [[1., 3.], [3., 7.]]);
    /// assert_eq!(x.cumprod(0)?.to_vec2::<f32>()?, [[1., 2.], [3., 8.]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn cumsum(&self, dim: impl Dim) -> Result<Tensor> {
        self.cumulative("cumsum", Running::Sum, dim)
    }
    /// Running products along a dim: element `i` is the product of those up to and with `i`. Same shape and type, i64 for integers (which wrap).
    /// Floats are multiplied in f64 and rounded once each. The gradient is exact with zeros among the factors.
    ///
    /// # Errors
    /// For a dim that is not there.
    #[track_caller]
    pub fn cumprod(&self, dim: impl Dim) -> Result<Tensor> {
        self.cumulative("cumprod", Running::Product, dim)
    }
}
