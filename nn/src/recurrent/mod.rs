//! Cells and sequences of them, over `[time, batch, features]`.
//!
//! A sequence is worked through in blocks of [`BLOCK`] steps: the input of a block is projected by one product, then the steps follow. Blocks start at
//! multiples of [`BLOCK`] whatever else is asked for, so a checkpointed sequence does the very same arithmetic as a plain one.

mod cell;
mod gru;
mod lstm;
mod rnn;
mod rnn_block;
mod sequence;

pub use cell::Cell;
pub use gru::GruCell;
pub use lstm::LstmCell;
pub use rnn::RnnCell;
pub use sequence::Recurrent;

/// Steps whose inputs are projected by one product.
pub(crate) const BLOCK: usize = 8;

/// A sequence of tanh cells.
pub type Rnn = Recurrent<RnnCell>;
/// A sequence of GRU cells.
pub type Gru = Recurrent<GruCell>;
/// A sequence of LSTM cells.
pub type Lstm = Recurrent<LstmCell>;
