//! Tensors, their operations and the tape those leave behind.
