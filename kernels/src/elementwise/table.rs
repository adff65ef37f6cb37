//! The table of elementwise ops: `STATIC name Bound (inputs; parameters) = expression => what backward reads [gradient row of each input]`.
//!
//! An expression is in the common subset of Rust and C++: variables, `lit(0.5)`, operators and the functions of `math.rs`. The CPU runs the
//! tokens, CUDA compiles their text. `Real` rows exist for floats, `Int` rows for integers, which wrap, `Num` rows for both. At kinks gradients are PyTorch's: relu' (0) = 0,
//! abs' (0) = 0, equal operands of maximum and minimum share the gradient by halves. Where the upstream gradient is 0 the gradient is 0, whatever the
//! factor is: an element that a later op masked out sends no NaN back (infinity times 0).

#![allow(clippy::approx_constant, reason = "an expression is text for CUDA too, which has no such names")]
#![allow(clippy::eq_op, reason = "`x - x` is 0 for finite numbers alone")]

use super::math::*;
use super::row::{Evals, FloatEvals, Gradient, IntegerEvals, MAX_INPUTS, Row, Saves, define_table, evals, gradient};
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
        // Far out the slope of tanh is 0, and x^3 may be infinite.
        + select_gt(magnitude(x), lit(10.0), lit(0.0), lit(0.5) * x
            * (lit(1.0) - tanh(lit(0.7978845608028654) * (x + lit(0.044715) * x * x * x)) * tanh(lit(0.7978845608028654) * (x + lit(0.044715) * x * x * x)))
            * lit(0.7978845608028654) * (lit(1.0) + lit(0.134145) * x * x))
    ));
    // x P(N(0, 1) < x): 1 / sqrt(2), and the density 1 / sqrt(2 pi) exp(-x^2 / 2)
    GELU_ERF gelu_erf Real (x) = lit(0.5) * x * (lit(1.0) + erf(x * lit(0.7071067811865476))) => Inputs [GELU_ERF_BACKWARD];
    GELU_ERF_BACKWARD gelu_erf_backward Real (x, g) =
        select_eq(g, lit(0.0), g, g * (
            lit(0.5) * (lit(1.0) + erf(x * lit(0.7071067811865476)))
            + select_gt(magnitude(x), lit(40.0), lit(0.0), x * lit(0.3989422804014327) * exp(lit(-0.5) * x * x))
        ));

    // Trigonometry.
    TAN tan Real (x) = tan(x) => Output [TAN_BACKWARD];
    TAN_BACKWARD tan_backward Real (y, g) = select_eq(g, lit(0.0), g, g * (lit(1.0) + y * y));
    ASIN asin Real (x) = asin(x) => Inputs [ASIN_BACKWARD];
    ASIN_BACKWARD asin_backward Real (x, g) = select_eq(g, lit(0.0), g, g / sqrt((lit(1.0) - x) * (lit(1.0) + x)));
    ACOS acos Real (x) = acos(x) => Inputs [ACOS_BACKWARD];
    ACOS_BACKWARD acos_backward Real (x, g) = select_eq(g, lit(0.0), g, -g / sqrt((lit(1.0) - x) * (lit(1.0) + x)));
    ATAN atan Real (x) = atan(x) => Inputs [ATAN_BACKWARD];
    ATAN_BACKWARD atan_backward Real (x, g) = select_eq(g, lit(0.0), g, g / (lit(1.0) + x * x));
    SINH sinh Real (x) = sinh(x) => Inputs [SINH_BACKWARD];
    SINH_BACKWARD sinh_backward Real (x, g) = select_eq(g, lit(0.0), g, g * cosh(x));
    COSH cosh Real (x) = cosh(x) => Inputs [COSH_BACKWARD];
    COSH_BACKWARD cosh_backward Real (x, g) = select_eq(g, lit(0.0), g, g * sinh(x));
    // Through hypot and two roots: no square that could leave the range.
    ASINH asinh Real (x) = asinh(x) => Inputs [ASINH_BACKWARD];
    ASINH_BACKWARD asinh_backward Real (x, g) = select_eq(g, lit(0.0), g, g / hypot(x, lit(1.0)));
    ACOSH acosh Real (x) = acosh(x) => Inputs [ACOSH_BACKWARD];
    ACOSH_BACKWARD acosh_backward Real (x, g) = select_eq(g, lit(0.0), g, g / (sqrt(x - lit(1.0)) * sqrt(x + lit(1.0))));
    ATANH atanh Real (x) = atanh(x) => Inputs [ATANH_BACKWARD];
    ATANH_BACKWARD atanh_backward Real (x, g) = select_eq(g, lit(0.0), g, g / ((lit(1.0) - x) * (lit(1.0) + x)));

    // Powers and logarithms of 2 and 10 (ln 2, ln 10), and what is left of 1 beside erf.
    EXP2 exp2 Real (x) = exp2(x) => Output [EXP2_BACKWARD];
    EXP2_BACKWARD exp2_backward Real (y, g) = select_eq(g, lit(0.0), g, g * y * lit(0.6931471805599453));
    LOG2 log2 Real (x) = log2(x) => Inputs [LOG2_BACKWARD];
    LOG2_BACKWARD log2_backward Real (x, g) = select_eq(g, lit(0.0), g, g / (x * lit(0.6931471805599453)));
    LOG10 log10 Real (x) = log10(x) => Inputs [LOG10_BACKWARD];
    LOG10_BACKWARD log10_backward Real (x, g) = select_eq(g, lit(0.0), g, g / (x * lit(2.302585092994046)));
    ERFC erfc Real (x) = erfc(x) => Inputs [ERFC_BACKWARD];
    ERFC_BACKWARD erfc_backward Real (x, g) = select_eq(g, lit(0.0), g, -g * lit(1.1283791670955126) * exp(-x * x));
    TRUNC trunc Real (x) = trunc(x) => Nothing [ZERO];
    FRAC frac Real (x) = x - trunc(x) => Nothing [IDENTITY];

    // Activations.
    MISH mish Real (x) = x * tanh(softplus(x)) => Inputs [MISH_BACKWARD];
    MISH_BACKWARD mish_backward Real (x, g) =
        select_eq(g, lit(0.0), g, g * (tanh(softplus(x)) + x * sigmoid(x) * (lit(1.0) - tanh(softplus(x)) * tanh(softplus(x)))));
    LOGSIGMOID logsigmoid Real (x) = -softplus(-x) => Inputs [LOGSIGMOID_BACKWARD];
    LOGSIGMOID_BACKWARD logsigmoid_backward Real (x, g) = select_eq(g, lit(0.0), g, g * sigmoid(-x));
    SOFTSIGN softsign Real (x) = x / (lit(1.0) + magnitude(x)) => Inputs [SOFTSIGN_BACKWARD];
    SOFTSIGN_BACKWARD softsign_backward Real (x, g) = select_eq(g, lit(0.0), g, g / (lit(1.0) + magnitude(x)) / (lit(1.0) + magnitude(x)));
    HARDSIGMOID hardsigmoid Real (x) = min_nan(max_nan(x + lit(3.0), lit(0.0)), lit(6.0)) / lit(6.0) => Inputs [HARDSIGMOID_BACKWARD];
    HARDSIGMOID_BACKWARD hardsigmoid_backward Real (x, g) = select_gt(x, lit(-3.0), select_lt(x, lit(3.0), g / lit(6.0), lit(0.0)), lit(0.0));
    HARDSWISH hardswish Real (x) = x * min_nan(max_nan(x + lit(3.0), lit(0.0)), lit(6.0)) / lit(6.0) => Inputs [HARDSWISH_BACKWARD];
    HARDSWISH_BACKWARD hardswish_backward Real (x, g) =
        select_eq(g, lit(0.0), g, select_le(x, lit(-3.0), lit(0.0), select_ge(x, lit(3.0), g, g * (x / lit(3.0) + lit(0.5)))));
    // Scale and alpha of Klambauer et al., "Self-normalizing neural networks", 2017.
    SELU selu Real (x) = lit(1.0507009873554805) * select_gt(x, lit(0.0), x, lit(1.6732632423543772) * expm1(x)) => Inputs [SELU_BACKWARD];
    SELU_BACKWARD selu_backward Real (x, g) =
        select_eq(g, lit(0.0), g, g * lit(1.0507009873554805) * select_gt(x, lit(0.0), lit(1.0), lit(1.6732632423543772) * exp(x)));
    ELU elu Real (x; p) = select_gt(x, lit(0.0), x, p * expm1(x)) => Inputs [ELU_BACKWARD];
    ELU_BACKWARD elu_backward Real (x, g; p) = select_eq(g, lit(0.0), g, select_gt(x, lit(0.0), g, g * p * exp(x)));
    CELU celu Real (x; p) = select_gt(x, lit(0.0), x, p * expm1(x / p)) => Inputs [CELU_BACKWARD];
    CELU_BACKWARD celu_backward Real (x, g; p) = select_eq(g, lit(0.0), g, select_gt(x, lit(0.0), g, g * exp(x / p)));
    SOFTPLUS softplus Real (x; p, q) = select_gt(x * p, q, x, softplus(x * p) / p) => Inputs [SOFTPLUS_BACKWARD];
    SOFTPLUS_BACKWARD softplus_backward Real (x, g; p, q) = select_eq(g, lit(0.0), g, select_gt(x * p, q, g, g * sigmoid(x * p)));
    HARDTANH hardtanh Real (x; p, q) = min_nan(max_nan(x, p), q) => Inputs [HARDTANH_BACKWARD];
    HARDTANH_BACKWARD hardtanh_backward Real (x, g; p, q) = select_le(x, p, lit(0.0), select_ge(x, q, lit(0.0), g));
    THRESHOLD threshold Real (x; p, q) = select_le(x, p, q, x) => Inputs [THRESHOLD_BACKWARD];
    THRESHOLD_BACKWARD threshold_backward Real (x, g; p, q) = select_le(x, p, lit(0.0), g);
    // x * 0 keeps a NaN.
    SOFTSHRINK softshrink Real (x; p) = select_gt(x, p, x - p, select_lt(x, -p, x + p, x * lit(0.0))) => Inputs [SHRINK_BACKWARD];
    HARDSHRINK hardshrink Real (x; p) = select_ge(x, -p, select_le(x, p, lit(0.0), x), x) => Inputs [SHRINK_BACKWARD];
    SHRINK_BACKWARD shrink_backward Real (x, g; p) = select_ge(x, -p, select_le(x, p, lit(0.0), g), g);

    // One input and parameters.
    AFFINE affine Num (x; p, q) = x * p + q => Nothing [AFFINE_BACKWARD];
    AFFINE_BACKWARD affine_backward Real (g; p) = g * p;
    POW_SCALAR pow_scalar Real (x; p) = pow(x, p) => Inputs [POW_SCALAR_BACKWARD];
    POW_SCALAR_BACKWARD pow_scalar_backward Real (x, g; p) = select_eq(g, lit(0.0), g, select_eq(p, lit(0.0), lit(0.0), g * (p * pow(x, p - lit(1.0)))));
    RPOW rpow Real (x; p) = pow(p, x) => Output [RPOW_BACKWARD];
    RPOW_BACKWARD rpow_backward Real (y, g; p) =
        select_eq(g, lit(0.0), g, select_eq(p, lit(0.0), select_le(y, lit(1.0), lit(0.0), g * (y * log(p))), g * (y * log(p))));
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
    // What is left of divisions; between jumps the quotient is constant.
    FMOD fmod Num (x, y) = rem_trunc(x, y) => Inputs [FMOD_BACKWARD_X, FMOD_BACKWARD_Y];
    FMOD_BACKWARD_X fmod_backward_x Real (x, y, g) = g;
    FMOD_BACKWARD_Y fmod_backward_y Real (x, y, g) = select_eq(g, lit(0.0), g, -g * round_even((x - rem_trunc(x, y)) / y));
    REMAINDER remainder Num (x, y) = rem_floor(x, y) => Inputs [REMAINDER_BACKWARD_X, REMAINDER_BACKWARD_Y];
    REMAINDER_BACKWARD_X remainder_backward_x Real (x, y, g) = g;
    REMAINDER_BACKWARD_Y remainder_backward_y Real (x, y, g) = select_eq(g, lit(0.0), g, -g * div_floor(x, y));
    FLOOR_DIVIDE floor_divide Num (x, y) = div_floor(x, y) => Nothing [ZERO, ZERO];
    // Through x / h / h with h = hypot(x, y): no square that could leave the range. At the origin gradients are 0.
    ATAN2 atan2 Real (x, y) = atan2(x, y) => Inputs [ATAN2_BACKWARD_X, ATAN2_BACKWARD_Y];
    ATAN2_BACKWARD_X atan2_backward_x Real (x, y, g) = select_eq(g, lit(0.0), g, select_eq(y, lit(0.0), lit(0.0), g * (y / hypot(x, y)) / hypot(x, y)));
    ATAN2_BACKWARD_Y atan2_backward_y Real (x, y, g) = select_eq(g, lit(0.0), g, select_eq(x, lit(0.0), lit(0.0), -g * (x / hypot(x, y)) / hypot(x, y)));
    HYPOT hypot Real (x, y) = hypot(x, y) => Inputs [HYPOT_BACKWARD_X, HYPOT_BACKWARD_Y];
    HYPOT_BACKWARD_X hypot_backward_x Real (x, y, g) = select_eq(g, lit(0.0), g, select_eq(x, lit(0.0), lit(0.0), g * (x / hypot(x, y))));
    HYPOT_BACKWARD_Y hypot_backward_y Real (x, y, g) = select_eq(g, lit(0.0), g, select_eq(y, lit(0.0), lit(0.0), g * (y / hypot(x, y))));
    COPYSIGN copysign Real (x, y) = copysign(x, y) => Inputs [COPYSIGN_BACKWARD_X, COPYSIGN_BACKWARD_Y];
    COPYSIGN_BACKWARD_X copysign_backward_x Real (x, y, g) = select_eq(x, lit(0.0), lit(0.0), g * (copysign(lit(1.0), x) * copysign(lit(1.0), y)));
    COPYSIGN_BACKWARD_Y copysign_backward_y Real (x, y, g) = lit(0.0);
    HEAVISIDE heaviside Num (x, y) = select_eq(x, lit(0.0), y, select_gt(x, lit(0.0), lit(1.0), lit(0.0))) => Inputs [HEAVISIDE_BACKWARD_X, HEAVISIDE_BACKWARD_Y];
    HEAVISIDE_BACKWARD_X heaviside_backward_x Real (x, y, g) = lit(0.0);
    HEAVISIDE_BACKWARD_Y heaviside_backward_y Real (x, y, g) = select_eq(x, lit(0.0), g, lit(0.0));
    // Where one operand is NaN, the other one; equal operands give the gradient to the first.
    FMAX fmax Num (x, y) = select_ge(x, y, x, select_eq(y, y, y, x)) => Inputs [FMAX_BACKWARD_X, FMAX_BACKWARD_Y];
    FMAX_BACKWARD_X fmax_backward_x Real (x, y, g) = select_ge(x, y, g, select_eq(y, y, lit(0.0), g));
    FMAX_BACKWARD_Y fmax_backward_y Real (x, y, g) = select_ge(x, y, lit(0.0), select_eq(y, y, g, lit(0.0)));
    FMIN fmin Num (x, y) = select_le(x, y, x, select_eq(y, y, y, x)) => Inputs [FMIN_BACKWARD_X, FMIN_BACKWARD_Y];
    FMIN_BACKWARD_X fmin_backward_x Real (x, y, g) = select_le(x, y, g, select_eq(y, y, lit(0.0), g));
    FMIN_BACKWARD_Y fmin_backward_y Real (x, y, g) = select_le(x, y, lit(0.0), select_eq(y, y, g, lit(0.0)));
    // x ln y, 0 where x is 0 and y no NaN.
    XLOGY xlogy Real (x, y) = select_eq(x, lit(0.0), select_eq(y, y, lit(0.0), y), x * log(y)) => Inputs [XLOGY_BACKWARD_X, XLOGY_BACKWARD_Y];
    XLOGY_BACKWARD_X xlogy_backward_x Real (x, y, g) =
        select_eq(g, lit(0.0), g, select_eq(x, lit(0.0), select_le(y, lit(0.0), lit(0.0), g * log(y)), g * log(y)));
    XLOGY_BACKWARD_Y xlogy_backward_y Real (x, y, g) = select_eq(g, lit(0.0), g, select_eq(x, lit(0.0), lit(0.0), g * x / y));
    // ln(e^x + e^y); equal operands apart, since infinite ones have no difference.
    LOGADDEXP logaddexp Real (x, y) = select_eq(x, y, x + lit(0.6931471805599453), max_nan(x, y) + log1p(exp(-magnitude(x - y))))
        => Inputs [LOGADDEXP_BACKWARD_X, LOGADDEXP_BACKWARD_Y];
    LOGADDEXP_BACKWARD_X logaddexp_backward_x Real (x, y, g) = select_eq(g, lit(0.0), g, select_eq(x, y, lit(0.5) * g, g * sigmoid(x - y)));
    LOGADDEXP_BACKWARD_Y logaddexp_backward_y Real (x, y, g) = select_eq(g, lit(0.0), g, select_eq(x, y, lit(0.5) * g, g * sigmoid(y - x)));

    // Integers: logic, where all but 0 is true, and bits.
    LOGICAL_AND logical_and Int (x, y) = select_eq(x, lit(0.0), lit(0.0), select_eq(y, lit(0.0), lit(0.0), lit(1.0)));
    LOGICAL_OR logical_or Int (x, y) = select_eq(x | y, lit(0.0), lit(0.0), lit(1.0));
    LOGICAL_XOR logical_xor Int (x, y) =
        select_eq(x, lit(0.0), select_eq(y, lit(0.0), lit(0.0), lit(1.0)), select_eq(y, lit(0.0), lit(1.0), lit(0.0)));
    BITWISE_AND bitwise_and Int (x, y) = x & y;
    BITWISE_OR bitwise_or Int (x, y) = x | y;
    BITWISE_XOR bitwise_xor Int (x, y) = x ^ y;
    BITWISE_NOT bitwise_not Int (x) = bit_not(x);
    BITWISE_LEFT_SHIFT bitwise_left_shift Int (x, y) = shift_left(x, y);
    BITWISE_RIGHT_SHIFT bitwise_right_shift Int (x, y) = shift_right(x, y);

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
    ADDCDIV addcdiv Real (x, y, z; p) = x + p * (y / z) => Inputs [ADDCDIV_BACKWARD_X, ADDCDIV_BACKWARD_Y, ADDCDIV_BACKWARD_Z];
    ADDCDIV_BACKWARD_X addcdiv_backward_x Real (x, y, z, g; p) = g;
    ADDCDIV_BACKWARD_Y addcdiv_backward_y Real (x, y, z, g; p) = select_eq(g, lit(0.0), g, g * p / z);
    ADDCDIV_BACKWARD_Z addcdiv_backward_z Real (x, y, z, g; p) = select_eq(g, lit(0.0), g, -g * (p * (y / z) / z));
    LERP_TENSOR lerp_tensor Real (x, y, z) = x + z * (y - x) => Inputs [LERP_TENSOR_BACKWARD_X, LERP_TENSOR_BACKWARD_Y, LERP_TENSOR_BACKWARD_Z];
    LERP_TENSOR_BACKWARD_X lerp_tensor_backward_x Real (x, y, z, g) = select_eq(g, lit(0.0), g, g * (lit(1.0) - z));
    LERP_TENSOR_BACKWARD_Y lerp_tensor_backward_y Real (x, y, z, g) = select_eq(g, lit(0.0), g, g * z);
    LERP_TENSOR_BACKWARD_Z lerp_tensor_backward_z Real (x, y, z, g) = select_eq(g, lit(0.0), g, g * (y - x));
    // Between tensors. A bound takes the gradient where it is the result and not x, the upper one also where the two are in the wrong order.
    CLAMP_TENSOR clamp_tensor Num (x, y, z) = min_nan(max_nan(x, y), z) => Inputs [CLAMP_TENSOR_BACKWARD_X, CLAMP_TENSOR_BACKWARD_Y, CLAMP_TENSOR_BACKWARD_Z];
    CLAMP_TENSOR_BACKWARD_X clamp_tensor_backward_x Real (x, y, z, g) = select_ge(x, y, select_le(x, z, g, lit(0.0)), lit(0.0));
    CLAMP_TENSOR_BACKWARD_Y clamp_tensor_backward_y Real (x, y, z, g) = select_lt(x, y, select_lt(y, z, g, lit(0.0)), lit(0.0));
    CLAMP_TENSOR_BACKWARD_Z clamp_tensor_backward_z Real (x, y, z, g) = select_gt(x, z, g, select_gt(y, z, g, lit(0.0)));
    // y for NaN, p and q for the infinities: x - x is 0 for finite numbers alone.
    NAN_TO_NUM nan_to_num Real (x, y; p, q) = select_eq(x - x, lit(0.0), x, select_gt(x, lit(0.0), p, select_lt(x, lit(0.0), q, y)))
        => Inputs [NAN_TO_NUM_BACKWARD_X, NAN_TO_NUM_BACKWARD_Y];
    NAN_TO_NUM_BACKWARD_X nan_to_num_backward_x Real (x, y, g; p, q) = select_eq(x - x, lit(0.0), g, lit(0.0));
    NAN_TO_NUM_BACKWARD_Y nan_to_num_backward_y Real (x, y, g; p, q) = select_eq(x, x, lit(0.0), g);
}
