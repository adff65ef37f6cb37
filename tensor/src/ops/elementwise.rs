//! `y = row(x, ..)`, element by element with NumPy broadcasting, for the rows of the one table. The gradient of input `i` is another row,
//! `rows[i](saved.., dy)`, summed over the dims that were broadcast.

use crate::op::{Autocast, BackwardContext, Derivative, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{Error, Result, Scalar, Shape, Tensor, exec};
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
        if !dtype.is_float() && !self.row.integers {
            return Err(Error::dtype(name, format!("not defined for {dtype}; convert to a float type with `to_dtype`")));
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
            "exp" | "log" | "log1p" | "expm1" | "pow" | "pow_scalar" | "reciprocal" | "rsqrt" => Autocast::Full,
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
                elementwise($row, [0.0; 2], &[self])
            }
        )*}
    };
}

unary! {
    /// `-x`.
    neg = "neg";
    /// `e^x`.
    exp = "exp";
    /// Natural logarithm.
    log = "log";
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
    /// Hyperbolic tangent.
    tanh = "tanh";
    /// `1 / (1 + e^-x)`.
    sigmoid = "sigmoid";
    /// `max(x, 0)`; the gradient at 0 is 0.
    relu = "relu";
    /// GELU in its tanh approximation: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))` (Hendrycks and Gimpel, 2016).
    gelu = "gelu";
    /// GELU exactly: `x/2 (1 + erf(x / sqrt(2)))`.
    gelu_erf = "gelu_erf";
    /// `x * sigmoid(x)`.
    silu = "silu";
    /// Sine.
    sin = "sin";
    /// Cosine.
    cos = "cos";
    /// The error function `2 / sqrt(pi) * integral of e^-t^2 from 0 to x`.
    erf = "erf";
    /// Largest integer not above; the gradient is 0.
    floor = "floor";
    /// Smallest integer not below; the gradient is 0.
    ceil = "ceil";
    /// Nearest integer, ties to even; the gradient is 0.
    round = "round";
    /// -1, 0 or 1; the gradient is 0.
    sign = "sign";
    /// `ln(1 + x)`, exact near 0.
    log1p = "log1p";
    /// `e^x - 1`, exact near 0.
    expm1 = "expm1";
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $row:literal;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// Operands broadcast as in NumPy and have one element type.
            #[track_caller]
            pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                elementwise($row, [0.0; 2], &[self, other])
            }
        )*}
    };
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
    /// `x^y`, floats only.
    pow = "pow";
    /// The larger; ties share the gradient.
    maximum = "maximum";
    /// The smaller; ties share the gradient.
    minimum = "minimum";
}

impl Tensor {
    /// `x * scale + shift`. Floats; integers where both numbers are whole.
    #[track_caller]
    pub fn affine(&self, scale: f64, shift: f64) -> Result<Tensor> {
        elementwise("affine", [scale, shift], &[self])
    }
    /// `x^exponent`.
    #[track_caller]
    pub fn powf(&self, exponent: f64) -> Result<Tensor> {
        elementwise("pow_scalar", [exponent, 0.0], &[self])
    }
    /// `min(max(x, low), high)`; the gradient is 0 outside.
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Scalar>, high: impl Into<Scalar>) -> Result<Tensor> {
        elementwise("clamp", [low.into().to_f64(), high.into().to_f64()], &[self])
    }
    /// `x` where positive, `slope * x` elsewhere.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        elementwise("leaky_relu", [slope, 0.0], &[self])
    }
    /// `(x - y)^2`.
    #[track_caller]
    pub fn squared_difference(&self, other: &Tensor) -> Result<Tensor> {
        elementwise("sq_diff", [0.0; 2], &[self, other])
    }
    /// `x + weight * (y - x)`: `x` for weight 0, `y` for 1. Floats only.
    #[track_caller]
    pub fn lerp(&self, other: &Tensor, weight: f64) -> Result<Tensor> {
        elementwise("lerp", [weight, 0.0], &[self, other])
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
    /// `x * y + z`.
    #[track_caller]
    pub fn mul_add(&self, y: &Tensor, z: &Tensor) -> Result<Tensor> {
        elementwise("mul_add", [0.0; 2], &[self, y, z])
    }
}
