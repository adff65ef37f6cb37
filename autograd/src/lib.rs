//! Reverse-mode automatic differentiation: backward, checkpointing, autocast and modes.
