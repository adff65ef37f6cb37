//! Layers, losses, optimizers, loss scaling and data loading.
