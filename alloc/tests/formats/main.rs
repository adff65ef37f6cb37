//! The file formats: traces and snapshots are read as they were written, by whomever, and hostile files come out as typed errors.

mod check;
mod fuzz;
mod machine;
mod memory;
mod sample;
mod snapshot;
mod trace;
