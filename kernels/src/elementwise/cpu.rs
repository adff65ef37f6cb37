//! CPU code.

pub(super) fn map(k: super::Map<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn map_in_place(k: super::MapInPlace<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}
