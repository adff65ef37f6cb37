//! The policies that come with the crate.

mod bump;
mod paged;
mod round_up;
mod torch;

pub use bump::Bump;
pub use paged::Paged;
pub use round_up::{RoundUp, Rounding};
pub use torch::Torch;
