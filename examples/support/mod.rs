//! What the examples share: their flags, the digits, one training step, and the table at the end.

// Each example is a crate of its own and uses a part of this.
#![allow(dead_code)]

pub mod cli;
pub mod digits;
pub mod log;
pub mod measure;
pub mod run;
pub mod say;
pub mod score;
pub mod sequences;
pub mod table;
pub mod trainer;
