//! CPU code.

pub(super) fn reduce(k: super::Reduce<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn arg_reduce(k: super::ArgReduce<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}
