//! The table.

/// One elementwise op.
pub struct Row {
    /// Its name, as `relu`; the gradient rows of `relu` is `relu_backward`.
    pub name: &'static str,
    /// How many inputs it takes, 1 to 3.
    pub inputs: usize,
    /// Whether it is defined for integers too.
    pub integers: bool,
    /// How it is differentiated; `None` for rows that are gradients themselves or have none.
    pub gradient: Option<Gradient>,
}

/// How a row is differentiated.
pub struct Gradient {
    /// What backward reads.
    pub saves: Saves,
    /// For each input, the row that gives its gradient: its inputs are the saved tensors in the order x, y, .. (or the output), then the
    /// upstream gradient `g` last; it gets the same parameters `p` and `q`.
    pub rows: &'static [&'static str],
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
    let _ = name;
    todo!()
}

/// All rows.
pub fn rows() -> &'static [Row] {
    todo!()
}
