//! The table of elementwise ops: `STATIC name Bound (inputs; parameters) = expression => what backward reads [gradient row of each input]`.
//!
//! An expression is in the common subset of Rust and C++: variables, `lit(0.5)`, operators and the functions of `math.rs`. The CPU runs the
//! tokens, CUDA compiles their text. `Num` rows exist for integers too, which wrap. At kinks gradients are PyTorch's: relu' (0) = 0,
//! abs' (0) = 0, equal operands of maximum and minimum share the gradient by halves. Where the upstream gradient is 0 the gradient is 0, whatever the
//! factor is: an element that a later op masked out sends no NaN back (infinity times 0).

#![allow(clippy::approx_constant, reason = "an expression is text for CUDA too, which has no such names")]

use super::math::*;
use super::row::{Evals, Gradient, IntegerEvals, MAX_INPUTS, Row, Saves, define_table, gradient, has_integers, integers};
use std::num::Wrapping;

define_table! {
    lit

    // Gradients that many rows share.
    IDENTITY identity Num (g) = g;
    ZERO zero Num (g) = lit(0.0);

    // One input.
    NEG neg Num (x) = -x => Nothing [NEG_BACKWARD];
    NEG_BACKWARD neg_backward Num (g) = -g;
    ABS abs Num (x) = magnitude(x) => Inputs [ABS_BACKWARD];
    ABS_BACKWARD abs_backward Real (x, g) = select_eq(g, lit(0.0), g, select_gt(x, lit(0.0), g, select_lt(x, lit(0.0), -g, x * g)));
    SIGN sign Num (x) = select_gt(x, lit(0.0), lit(1.0), select_lt(x, lit(0.0), lit(-1.0), x)) => Nothing [ZERO];
    SQUARE square Num (x) = x * x => Inputs [SQUARE_BACKWARD];
    SQUARE_BACKWARD square_backward Real (x, g) = select_eq(g, lit(0.0), g, lit(2.0) * x * g);
    RECIPROCAL reciprocal Real (x) = lit(1.0) / x => Output [RECIPROCAL_BACKWARD];
    RECIPROCAL_BACKWARD reciprocal_backward Real (y, g) = select_eq(g, lit(0.0), g, -g * y * y);
    SQRT sqrt Real (x) = sqrt(x) => Output [SQRT_BACKWARD];
    SQRT_BACKWARD sqrt_backward Real (y, g) = select_eq(g, lit(0.0), g, g / (lit(2.0) * y));
    RSQRT rsqrt Real (x) = lit(1.0) / sqrt(x) => Output [RSQRT_BACKWARD];
    RSQRT_BACKWARD rsqrt_backward Real (y, g) = select_eq(g, lit(0.0), g, lit(-0.5) * g * y * y * y);
    EXP exp Real (x) = exp(x) => Output [EXP_BACKWARD];
    EXP_BACKWARD exp_backward Real (y, g) = select_eq(g, lit(0.0), g, g * y);
    EXPM1 expm1 Real (x) = expm1(x) => Output [EXPM1_BACKWARD];
    EXPM1_BACKWARD expm1_backward Real (y, g) = select_eq(g, lit(0.0), g, g * (y + lit(1.0)));
    LOG log Real (x) = log(x) => Inputs [LOG_BACKWARD];
    LOG_BACKWARD log_backward Real (x, g) = select_eq(g, lit(0.0), g, g / x);
    LOG1P log1p Real (x) = log1p(x) => Inputs [LOG1P_BACKWARD];
    LOG1P_BACKWARD log1p_backward Real (x, g) = select_eq(g, lit(0.0), g, g / (x + lit(1.0)));
    SIN sin Real (x) = sin(x) => Inputs [SIN_BACKWARD];
    SIN_BACKWARD sin_backward Real (x, g) = select_eq(g, lit(0.0), g, g * cos(x));
    COS cos Real (x) = cos(x) => Inputs [COS_BACKWARD];
    COS_BACKWARD cos_backward Real (x, g) = select_eq(g, lit(0.0), g, -g * sin(x));
    TANH tanh Real (x) = tanh(x) => Output [TANH_BACKWARD];
    TANH_BACKWARD tanh_backward Real (y, g) = select_eq(g, lit(0.0), g, g * (lit(1.0) - y * y));
    SIGMOID sigmoid Real (x) = sigmoid(x) => Output [SIGMOID_BACKWARD];
    SIGMOID_BACKWARD sigmoid_backward Real (y, g) = select_eq(g, lit(0.0), g, g * y * (lit(1.0) - y));
    ERF erf Real (x) = erf(x) => Inputs [ERF_BACKWARD];
    // 2 / sqrt(pi)
    ERF_BACKWARD erf_backward Real (x, g) = select_eq(g, lit(0.0), g, g * lit(1.1283791670955126) * exp(-x * x));
    FLOOR floor Real (x) = floor(x) => Nothing [ZERO];
    CEIL ceil Real (x) = ceil(x) => Nothing [ZERO];
    ROUND round Real (x) = round_even(x) => Nothing [ZERO];
    RELU relu Num (x) = select_lt(x, lit(0.0), lit(0.0), x) => Output [RELU_BACKWARD];
    RELU_BACKWARD relu_backward Real (y, g) = select_le(y, lit(0.0), lit(0.0), g);
    SILU silu Real (x) = x * sigmoid(x) => Inputs [SILU_BACKWARD];
    SILU_BACKWARD silu_backward Real (x, g) = select_eq(g, lit(0.0), g, g * sigmoid(x) * (lit(1.0) + x * (lit(1.0) - sigmoid(x))));
    // 0.5 x (1 + tanh(k (x + 0.044715 x^3))), k = sqrt(2 / pi) (Hendrycks, Gimpel: "Gaussian error linear units", 2016)
    GELU gelu Real (x) = lit(0.5) * x * (lit(1.0) + tanh(lit(0.7978845608028654) * (x + lit(0.044715) * x * x * x))) => Inputs [GELU_BACKWARD];
    GELU_BACKWARD gelu_backward Real (x, g) = select_eq(g, lit(0.0), g, g * (
        lit(0.5) * (lit(1.0) + tanh(lit(0.7978845608028654) * (x + lit(0.044715) * x * x * x)))
        + lit(0.5) * x
            * (lit(1.0) - tanh(lit(0.7978845608028654) * (x + lit(0.044715) * x * x * x)) * tanh(lit(0.7978845608028654) * (x + lit(0.044715) * x * x * x)))
            * lit(0.7978845608028654) * (lit(1.0) + lit(0.134145) * x * x)
    ));
    // x P(N(0, 1) < x): 1 / sqrt(2), and the density 1 / sqrt(2 pi) exp(-x^2 / 2)
    GELU_ERF gelu_erf Real (x) = lit(0.5) * x * (lit(1.0) + erf(x * lit(0.7071067811865476))) => Inputs [GELU_ERF_BACKWARD];
    GELU_ERF_BACKWARD gelu_erf_backward Real (x, g) =
        select_eq(g, lit(0.0), g, g * (lit(0.5) * (lit(1.0) + erf(x * lit(0.7071067811865476))) + x * lit(0.3989422804014327) * exp(lit(-0.5) * x * x)));

    // One input and parameters.
    AFFINE affine Num (x; p, q) = x * p + q => Nothing [AFFINE_BACKWARD];
    AFFINE_BACKWARD affine_backward Real (g; p) = g * p;
    POW_SCALAR pow_scalar Real (x; p) = pow(x, p) => Inputs [POW_SCALAR_BACKWARD];
    POW_SCALAR_BACKWARD pow_scalar_backward Real (x, g; p) = select_eq(g, lit(0.0), g, select_eq(p, lit(0.0), lit(0.0), g * (p * pow(x, p - lit(1.0)))));
    CLAMP clamp Num (x; p, q) = min_nan(max_nan(x, p), q) => Inputs [CLAMP_BACKWARD];
    CLAMP_BACKWARD clamp_backward Real (x, g; p, q) = select_ge(x, p, select_le(x, q, g, lit(0.0)), lit(0.0));
    LEAKY_RELU leaky_relu Real (x; p) = select_gt(x, lit(0.0), x, x * p) => Inputs [LEAKY_RELU_BACKWARD];
    LEAKY_RELU_BACKWARD leaky_relu_backward Real (x, g; p) = select_gt(x, lit(0.0), g, g * p);

    // Two inputs.
    ADD add Num (x, y) = x + y => Nothing [IDENTITY, IDENTITY];
    SUB sub Num (x, y) = x - y => Nothing [IDENTITY, NEG_BACKWARD];
    MUL mul Num (x, y) = x * y => Inputs [MUL_BACKWARD_X, MUL_BACKWARD_Y];
    MUL_BACKWARD_X mul_backward_x Real (x, y, g) = select_eq(g, lit(0.0), g, g * y);
    MUL_BACKWARD_Y mul_backward_y Real (x, y, g) = select_eq(g, lit(0.0), g, g * x);
    DIV div Real (x, y) = x / y => Inputs [DIV_BACKWARD_X, DIV_BACKWARD_Y];
    DIV_BACKWARD_X div_backward_x Real (x, y, g) = select_eq(g, lit(0.0), g, g / y);
    DIV_BACKWARD_Y div_backward_y Real (x, y, g) = select_eq(g, lit(0.0), g, -g * ((x / y) / y));
    POW pow Real (x, y) = pow(x, y) => Inputs [POW_BACKWARD_X, POW_BACKWARD_Y];
    POW_BACKWARD_X pow_backward_x Real (x, y, g) = select_eq(g, lit(0.0), g, select_eq(y, lit(0.0), lit(0.0), g * (y * pow(x, y - lit(1.0)))));
    POW_BACKWARD_Y pow_backward_y Real (x, y, g) =
        select_eq(g, lit(0.0), g, select_eq(x, lit(0.0), select_ge(y, lit(0.0), lit(0.0), g * (pow(x, y) * log(x))), g * (pow(x, y) * log(x))));
    MAXIMUM maximum Num (x, y) = max_nan(x, y) => Inputs [MAXIMUM_BACKWARD_X, MAXIMUM_BACKWARD_Y];
    MAXIMUM_BACKWARD_X maximum_backward_x Real (x, y, g) = select_eq(x, y, lit(0.5) * g, select_lt(x, y, lit(0.0), g));
    MAXIMUM_BACKWARD_Y maximum_backward_y Real (x, y, g) = select_eq(x, y, lit(0.5) * g, select_gt(x, y, lit(0.0), g));
    MINIMUM minimum Num (x, y) = min_nan(x, y) => Inputs [MINIMUM_BACKWARD_X, MINIMUM_BACKWARD_Y];
    MINIMUM_BACKWARD_X minimum_backward_x Real (x, y, g) = select_eq(x, y, lit(0.5) * g, select_gt(x, y, lit(0.0), g));
    MINIMUM_BACKWARD_Y minimum_backward_y Real (x, y, g) = select_eq(x, y, lit(0.5) * g, select_lt(x, y, lit(0.0), g));
    SQ_DIFF sq_diff Num (x, y) = (x - y) * (x - y) => Inputs [SQ_DIFF_BACKWARD_X, SQ_DIFF_BACKWARD_Y];
    SQ_DIFF_BACKWARD_X sq_diff_backward_x Real (x, y, g) = select_eq(g, lit(0.0), g, lit(2.0) * (x - y) * g);
    SQ_DIFF_BACKWARD_Y sq_diff_backward_y Real (x, y, g) = select_eq(g, lit(0.0), g, lit(-2.0) * (x - y) * g);

    // Two or three inputs, with or without parameters.
    ADD_SCALED add_scaled Num (x, y; p) = x + p * y => Nothing [IDENTITY, AFFINE_BACKWARD];
    LERP lerp Real (x, y; p) = x + p * (y - x) => Nothing [LERP_BACKWARD_X, AFFINE_BACKWARD];
    LERP_BACKWARD_X lerp_backward_x Real (g; p) = g * (lit(1.0) - p);
    ADDCMUL addcmul Num (x, y, z; p) = x + p * y * z => Inputs [ADDCMUL_BACKWARD_X, ADDCMUL_BACKWARD_Y, ADDCMUL_BACKWARD_Z];
    ADDCMUL_BACKWARD_X addcmul_backward_x Real (x, y, z, g; p) = g;
    ADDCMUL_BACKWARD_Y addcmul_backward_y Real (x, y, z, g; p) = select_eq(g, lit(0.0), g, g * p * z);
    ADDCMUL_BACKWARD_Z addcmul_backward_z Real (x, y, z, g; p) = select_eq(g, lit(0.0), g, g * p * y);
    MUL_ADD mul_add Num (x, y, z) = x * y + z => Inputs [MUL_ADD_BACKWARD_X, MUL_ADD_BACKWARD_Y, MUL_ADD_BACKWARD_Z];
    MUL_ADD_BACKWARD_X mul_add_backward_x Real (x, y, z, g) = select_eq(g, lit(0.0), g, g * y);
    MUL_ADD_BACKWARD_Y mul_add_backward_y Real (x, y, z, g) = select_eq(g, lit(0.0), g, g * x);
    MUL_ADD_BACKWARD_Z mul_add_backward_z Real (x, y, z, g) = g;
}
