//! What a row of the table is, and finding one by name.

use super::table;
use crate::DType;
use std::collections::HashMap;
use std::num::Wrapping;
use std::sync::OnceLock;

/// The most inputs a row takes.
pub(crate) const MAX_INPUTS: usize = 4;

/// Computes a row over slices of one length; inputs that the row does not take are empty.
pub(crate) type Eval<T> = fn(out: &mut [T], inputs: [&[T]; MAX_INPUTS], params: [f64; 2]);

/// A row as Rust code, for each type it is computed in.
pub(crate) struct Evals {
    pub floats: Option<FloatEvals>,
    pub integers: Option<IntegerEvals>,
}

/// A row over floats.
pub(crate) struct FloatEvals {
    pub f64: Eval<f64>,
    pub f32: Eval<f32>,
}

/// A row over integers.
pub(crate) struct IntegerEvals {
    pub i64: Eval<Wrapping<i64>>,
    pub u32: Eval<Wrapping<u32>>,
    pub u8: Eval<Wrapping<u8>>,
}

/// One elementwise op.
pub struct Row {
    /// Its name, as `relu`; the gradient rows of `relu` is `relu_backward`.
    pub name: &'static str,
    /// How many inputs it takes, 1 to 4 (to 3 for rows that are no gradients).
    pub inputs: usize,
    /// Whether it is defined for floats.
    pub floats: bool,
    /// Whether it is defined for integers.
    pub integers: bool,
    /// How it is differentiated; `None` for rows that are gradients themselves or have none.
    pub gradient: Option<Gradient>,
    /// Its place in [`rows`].
    pub(crate) id: u32,
    /// The name of its functor in CUDA C++.
    pub(crate) functor: &'static str,
    /// Names of its inputs, as the expression has them.
    pub(crate) variables: &'static [&'static str],
    /// The expression as text.
    pub(crate) expression: &'static str,
    /// The expression as code.
    pub(crate) evals: Evals,
}

impl Row {
    /// Whether it is defined for an element type.
    pub fn takes(&self, dtype: DType) -> bool {
        if dtype.is_float() { self.floats } else { self.integers }
    }
    /// Whether the expression mentions input `i`. A gradient row is given all saved tensors; where it does not read one, any tensor of the
    /// right dims and type may stand in for it, and need not have been saved.
    pub fn reads(&self, i: usize) -> bool {
        self.variables.get(i).is_some_and(|name| words(self.expression).any(|word| word == *name))
    }
}

/// Identifiers and numbers of an expression.
fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// How a row is differentiated.
pub struct Gradient {
    /// What backward reads.
    pub saves: Saves,
    /// For each input, the row that gives its gradient: its inputs are the saved tensors in the order x, y, .. (or the output), then the
    /// upstream gradient `g` last; it gets the same parameters `p` and `q`. The row `identity` passes `g` on, `zero` has no gradient.
    pub rows: &'static [&'static str],
    /// The same rows themselves.
    pub(crate) resolved: &'static [&'static Row],
}

impl Gradient {
    /// The row that gives the gradient of input `i`, without a look-up by name.
    pub fn row(&self, i: usize) -> &'static Row {
        self.resolved[i]
    }
}

/// What the gradient of a row reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    /// Nothing but the upstream gradient.
    Nothing,
    /// All inputs.
    Inputs,
    /// The output.
    Output,
}

/// The row of a name; panics on a name that is not in the table (names are literals of this project).
pub fn row(name: &str) -> &'static Row {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static Row>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| table::ROWS.iter().map(|row| (row.name, *row)).collect());
    by_name.get(name).unwrap_or_else(|| panic!("no elementwise row is named {name}"))
}

/// All rows, in the order of the table.
pub fn rows() -> &'static [&'static Row] {
    table::ROWS
}

macro_rules! gradient {
    () => {
        None
    };
    ($saves:ident [$($row:ident),+]) => {
        Some(Gradient { saves: Saves::$saves, rows: &[$($row.name),+], resolved: &[$(&$row),+] })
    };
}
/// The code of a row, for the types of its bound.
macro_rules! evals {
    (Num $eval:ident) => {
        Evals { floats: evals!(@floats $eval), integers: evals!(@integers $eval) }
    };
    (Real $eval:ident) => {
        Evals { floats: evals!(@floats $eval), integers: None }
    };
    (Int $eval:ident) => {
        Evals { floats: None, integers: evals!(@integers $eval) }
    };
    (@floats $eval:ident) => {
        Some(FloatEvals { f64: $eval::<f64>, f32: $eval::<f32> })
    };
    (@integers $eval:ident) => {
        Some(IntegerEvals { i64: $eval::<Wrapping<i64>>, u32: $eval::<Wrapping<u32>>, u8: $eval::<Wrapping<u8>> })
    };
}

/// Defines a static for each row, and `ROWS` of them all. `$bound` is `Real` for rows of floats, `Int` of integers, `Num` of both;
/// `$lit` makes a constant in expressions.
macro_rules! define_table {
    ($lit:ident $($static:ident $name:ident $bound:ident ($($x:ident),+ $(; $($p:ident),+)?) = $e:expr $(=> $saves:ident [$($gradient:ident),+])?;)*) => {
        /// Numbers the rows.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Id { $($static),* }

        $(
            #[doc = concat!("`", stringify!($name), "(", stringify!($($x),+ $(; $($p),+)?), ") = ", stringify!($e), "`")]
            pub static $static: Row = {
                #[allow(unused_variables, clippy::extra_unused_type_parameters)]
                fn eval<T: $bound>(out: &mut [T], inputs: [&[T]; MAX_INPUTS], params: [f64; 2]) {
                    let n = out.len();
                    let [$($x,)+ ..] = inputs;
                    $(let $x = &$x[..n];)+
                    $(let [$($p,)+ ..] = params.map(T::lit);)?
                    let $lit = T::lit;
                    for i in 0..n {
                        $(let $x = $x[i];)+
                        out[i] = $e;
                    }
                }
                const EVALS: Evals = evals!($bound eval);
                Row {
                    name: stringify!($name),
                    inputs: [$(stringify!($x)),+].len(),
                    floats: EVALS.floats.is_some(),
                    integers: EVALS.integers.is_some(),
                    gradient: gradient!($($saves [$($gradient),+])?),
                    id: Id::$static as u32,
                    functor: concat!("Row_", stringify!($name)),
                    variables: &[$(stringify!($x)),+],
                    expression: stringify!($e),
                    evals: EVALS,
                }
            };
        )*

        pub(super) static ROWS: &[&Row] = &[$(&$static),*];
    };
}
pub(super) use {define_table, evals, gradient};
