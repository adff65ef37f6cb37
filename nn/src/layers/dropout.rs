//! Dropout: in training mode zeros with probability `p`, and `x / (1 - p)` elsewhere.

use crate::Module;
use kiln_tensor::{Error, Result, Tensor};

/// Dropout with a mask from the device's generator; the identity inside `eval`.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    p: f64,
}

impl Dropout {
    /// With probability `p` of a zero.
    ///
    /// # Errors
    /// Where `p` is not within 0 and 1.
    pub fn new(p: f64) -> Result<Dropout> {
        if (0.0..=1.0).contains(&p) {
            Ok(Dropout { p })
        } else {
            Err(Error::argument("dropout", format!("probability {p} is not within 0 and 1")))
        }
    }
}

impl Module for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.dropout(self.p)
    }
    fn is_layer(&self) -> bool {
        true
    }
}
