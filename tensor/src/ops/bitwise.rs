//! Bits of integers: rows of the elementwise table. A mask of 0 and 1 is inverted by `logical_not`; `bitwise_not` makes 254 of 1.

use super::elementwise::{binary_or_number, unary};
use crate::ops::TensorOrScalar;
use crate::{Result, Tensor};

unary! {
    /// All bits inverted, integers only: `-1 - x` where there is a sign.
    bitwise_not = "bitwise_not";
}

binary_or_number! {
    /// Bits that both have, integers only.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![6i64, -1], 2, &Device::cpu())?;
    /// assert_eq!(x.bitwise_and(3)?.to_vec::<i64>()?, [2, 3]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    bitwise_and = "bitwise_and";
    /// Bits that one of them or both have, integers only.
    bitwise_or = "bitwise_or";
    /// Bits that exactly one of them has, integers only.
    bitwise_xor = "bitwise_xor";
    /// `x * 2^other`, bits that leave the type lost; integers only. 0 where `other` is negative or no smaller than the number of bits.
    bitwise_left_shift = "bitwise_left_shift";
    /// `x / 2^other` rounded down, integers only. Where `other` is negative or no smaller than the number of bits: -1 for negative numbers, else 0.
    bitwise_right_shift = "bitwise_right_shift";
}
