//! CPU code.

pub(super) fn mat_mul(k: super::MatMul<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}
