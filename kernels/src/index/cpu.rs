//! CPU code.

pub(super) fn index_select(k: super::IndexSelect<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn index_add(k: super::IndexAdd<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}
