//! `y = row(x, ..)`, element by element with NumPy broadcasting, for the rows of the one table. The gradient of input `i` is another row,
//! `rows[i](saved.., dy)`, summed over the dims that were broadcast.

use crate::op::{Autocast, BackwardContext, Derivative, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::ops::compare::{TensorOrScalar, scalar_like};
use crate::saved::SavedTensors;
use crate::{DType, Error, Result, Scalar, Shape, Tensor, exec};
use kiln_kernels::elementwise::{Gradient, Row, Saves, row};
use smallvec::SmallVec;

struct Elementwise {
    row: &'static Row,
    params: [f64; 2],
    shapes: SmallVec<[Shape; 3]>,
}

impl Elementwise {
    /// Whether the gradient of an input that `wanted` names reads input `j`.
    fn is_read(&self, gradient: &Gradient, j: usize, wanted: impl Fn(usize) -> bool) -> bool {
        (0..self.shapes.len()).any(|i| wanted(i) && gradient.row(i).reads(j))
    }
}

impl Op for Elementwise {
    fn name(&self) -> &'static str {
        self.row.name
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let name = self.row.name;
        let dtype = inputs[0].dtype();
        if let Some(other) = inputs.iter().find(|t| t.dtype() != dtype) {
            let message = format!("operands have types {dtype} and {}; convert one with `to_dtype`", other.dtype());
            return Err(Error::dtype(name, message));
        }
        if !self.row.takes(dtype) {
            let other = if self.row.floats { "a float type" } else { "an integer type" };
            return Err(Error::dtype(name, format!("not defined for {dtype}; convert to {other} with `to_dtype`")));
        }
        let shape = self.shapes[1..].iter().try_fold(self.shapes[0].clone(), |s, other| s.broadcast(other, name))?;
        let inputs: SmallVec<[&Tensor; 3]> = inputs.iter().collect();
        Ok(exec::map(name, self.row, self.params, &inputs, &shape)?.into())
    }
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        let Some(gradient) = &self.row.gradient else { return Ok(()) };
        match gradient.saves {
            Saves::Inputs => {
                let needed = |j: &usize| self.is_read(gradient, *j, |i| keep.needs(i));
                let needed: SmallVec<[usize; 3]> = (0..inputs.len()).filter(needed).collect();
                needed.into_iter().try_for_each(|j| keep.tensor(&inputs[j]))
            }
            Saves::Output => keep.tensor(&outputs.results[0]),
            Saves::Nothing => Ok(()),
        }
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let gradient = self.row.gradient.as_ref().ok_or(Error::NoDerivative { op: self.row.name })?;
        let g = ctx.only(grads)?;
        let mut taken = 0;
        let mut next = || {
            taken += 1;
            saved.take(taken - 1)
        };
        let saved: SmallVec<[Tensor; 3]> = match gradient.saves {
            Saves::Nothing => SmallVec::new(),
            Saves::Output => SmallVec::from_iter([next()?]),
            // What no gradient reads was not saved: `g` stands in for it.
            Saves::Inputs => (0..self.shapes.len())
                .map(|j| if self.is_read(gradient, j, |i| ctx.recorded(i)) { next() } else { Ok(g.clone()) })
                .collect::<Result<_>>()?,
        };
        let one = |i: usize| -> Result<Option<Tensor>> {
            if !ctx.needs(i) {
                return Ok(None);
            }
            // `add` and its like hand the gradient on as it is.
            let full = if gradient.rows[i] == "identity" {
                g.clone()
            } else {
                let inputs: SmallVec<[&Tensor; 4]> = saved.iter().chain([&g]).collect();
                exec::map(ctx.op(), gradient.row(i), self.params, &inputs, &g.shape())?
            };
            full.sum_to(&self.shapes[i]).map(Some)
        };
        (0..self.shapes.len()).map(one).collect()
    }
    fn derivative(&self) -> Derivative {
        if self.row.gradient.is_some() { Derivative::Defined } else { Derivative::Missing }
    }
    fn autocast(&self) -> Autocast {
        match self.row.name {
            "exp" | "exp2" | "expm1" | "log" | "log1p" | "log2" | "log10" | "pow" | "pow_scalar" | "rpow" => Autocast::Full,
            "reciprocal" | "rsqrt" | "tan" | "asin" | "acos" | "sinh" | "cosh" | "softplus" => Autocast::Full,
            _ if self.row.inputs > 1 => Autocast::Widest,
            _ => Autocast::Keep,
        }
    }
}

/// Applies a row of the elementwise table.
#[track_caller]
pub(crate) fn elementwise(name: &'static str, params: [f64; 2], inputs: &[&Tensor]) -> Result<Tensor> {
    let shapes = inputs.iter().map(|t| t.shape()).collect();
    apply(Elementwise { row: row(name), params, shapes }, inputs)
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $row:literal;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                $crate::ops::elementwise::elementwise($row, [0.0; 2], &[self])
            }
        )*}
    };
}
pub(super) use unary;

unary! {
    /// `-x`.
    neg = "neg";
    /// Square root; the gradient at 0 is infinite.
    sqrt = "sqrt";
    /// `1 / sqrt(x)`.
    rsqrt = "rsqrt";
    /// `|x|`; the gradient at 0 is 0.
    abs = "abs";
    /// `x * x`.
    square = "square";
    /// `1 / x`.
    reciprocal = "reciprocal";
    /// Largest integer not above; the gradient is 0.
    floor = "floor";
    /// Smallest integer not below; the gradient is 0.
    ceil = "ceil";
    /// Nearest integer, ties to even; the gradient is 0.
    round = "round";
    /// The integer toward 0; the gradient is 0.
    trunc = "trunc";
    /// `x - trunc(x)`, with the sign of `x`.
    frac = "frac";
    /// -1, 0 or 1, NaN for NaN; the gradient is 0.
    sign = "sign";
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $row:literal;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// Operands broadcast as in NumPy and have one element type.
            #[track_caller]
            pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                $crate::ops::elementwise::elementwise($row, [0.0; 2], &[self, other])
            }
        )*}
    };
}
pub(super) use binary;

/// As `binary`, for ops whose other operand may be a number.
macro_rules! binary_or_number {
    ($($(#[$doc:meta])* $name:ident = $row:literal;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// The other operand is a tensor of the same element type, which broadcasts as in NumPy, or a number, which that type must hold.
            #[track_caller]
            pub fn $name(&self, other: impl TensorOrScalar) -> Result<Tensor> {
                $crate::ops::elementwise::elementwise($row, [0.0; 2], &[self, &other.beside(stringify!($name), self)?])
            }
        )*}
    };
}
pub(super) use binary_or_number;

binary_or_number! {
    /// `|x|` with the sign of `other`, -0 having one too. Floats only; the gradient in `x` is 0 at 0, the one in `other` everywhere.
    copysign = "copysign";
    /// 0 where `x` is negative, 1 where it is positive, `other` where it is 0; 0 for NaN. `other` has a gradient where it is taken, `x` none but 0.
    heaviside = "heaviside";
}

binary! {
    /// `x + y`.
    add = "add";
    /// `x - y`.
    sub = "sub";
    /// `x * y`.
    mul = "mul";
    /// `x / y`, floats only.
    div = "div";
    /// `x^y`, floats only; `powf` takes the exponent as a number, `rpow` the base.
    pow = "pow";
    /// The larger, NaN where either is; ties share the gradient.
    maximum = "maximum";
    /// The smaller, NaN where either is; ties share the gradient.
    minimum = "minimum";
    /// The larger, where one is NaN the other; a tie gives its gradient to the first.
    fmax = "fmax";
    /// The smaller, where one is NaN the other; a tie gives its gradient to the first.
    fmin = "fmin";
}

/// Whether a number is an integer that f64 may not hold.
pub(super) fn is_beyond_f64(value: Scalar) -> bool {
    matches!(value, Scalar::Int(v) if v.unsigned_abs() > 1 << 53)
}

impl Tensor {
    /// `x * scale + shift`. Floats; integers where both numbers are whole.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f32, 2.0], 2, &Device::cpu())?;
    /// assert_eq!(x.affine(2.0, -1.0)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn affine(&self, scale: impl Into<Scalar>, shift: impl Into<Scalar>) -> Result<Tensor> {
        let (scale, shift) = (scale.into(), shift.into());
        if self.dtype() == DType::I64 && [scale, shift].into_iter().any(is_beyond_f64) {
            // Parameters of rows are f64: such numbers go as tensors.
            return self.mul(&scalar_like("affine", scale, self)?)?.add(&scalar_like("affine", shift, self)?);
        }
        elementwise("affine", [scale.to_f64(), shift.to_f64()], &[self])
    }
    /// `x^exponent`.
    #[track_caller]
    pub fn powf(&self, exponent: f64) -> Result<Tensor> {
        elementwise("pow_scalar", [exponent, 0.0], &[self])
    }
    /// `base^x`, floats only: the power with the number below.
    #[track_caller]
    pub fn rpow(&self, base: f64) -> Result<Tensor> {
        elementwise("rpow", [base, 0.0], &[self])
    }
    /// `(x - y)^2`.
    #[track_caller]
    pub fn squared_difference(&self, other: &Tensor) -> Result<Tensor> {
        elementwise("sq_diff", [0.0; 2], &[self, other])
    }
    /// `x + weight * (y - x)`: `x` for weight 0, `y` for 1. Floats only; the weight is a number or a tensor, which broadcasts.
    #[track_caller]
    pub fn lerp(&self, other: &Tensor, weight: impl TensorOrScalar) -> Result<Tensor> {
        match weight.number() {
            Some(weight) => elementwise("lerp", [weight.to_f64(), 0.0], &[self, other]),
            None => elementwise("lerp_tensor", [0.0; 2], &[self, other, &weight.beside("lerp", self)?]),
        }
    }
    /// `x + alpha * y`.
    #[track_caller]
    pub fn add_scaled(&self, other: &Tensor, alpha: f64) -> Result<Tensor> {
        elementwise("add_scaled", [alpha, 0.0], &[self, other])
    }
    /// `x + value * y * z`.
    #[track_caller]
    pub fn addcmul(&self, y: &Tensor, z: &Tensor, value: f64) -> Result<Tensor> {
        elementwise("addcmul", [value, 0.0], &[self, y, z])
    }
    /// `x + value * y / z`, floats only.
    #[track_caller]
    pub fn addcdiv(&self, y: &Tensor, z: &Tensor, value: f64) -> Result<Tensor> {
        elementwise("addcdiv", [value, 0.0], &[self, y, z])
    }
    /// `x * y + z`.
    #[track_caller]
    pub fn mul_add(&self, y: &Tensor, z: &Tensor) -> Result<Tensor> {
        elementwise("mul_add", [0.0; 2], &[self, y, z])
    }
}
