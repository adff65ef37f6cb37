//! What a block is for: the rows of the memory report.

/// What a block of memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Category {
    /// Weights and biases of a model.
    Parameters,
    /// Gradients accumulated into parameters.
    Gradients,
    /// Momentum, variance and the like.
    OptimizerState,
    /// Tensors that the backward pass will read.
    Activations,
    /// Everything that is none of the others; what an op returns, until it is saved for backward.
    Temporaries,
    /// Batches copied to the device.
    Inputs,
    /// Scratch space of kernels and libraries, and small blocks internal to a device.
    Workspace,
}

impl Category {
    /// Every category, in the order of the report.
    pub const ALL: [Category; 7] = [
        Category::Parameters,
        Category::Gradients,
        Category::OptimizerState,
        Category::Activations,
        Category::Temporaries,
        Category::Inputs,
        Category::Workspace,
    ];

    /// The name shown in reports.
    pub fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::OptimizerState => "optimizer state",
            Category::Activations => "activations",
            Category::Temporaries => "temporaries",
            Category::Inputs => "inputs",
            Category::Workspace => "workspace",
        }
    }
}
