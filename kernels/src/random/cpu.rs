//! CPU code.

pub(super) fn uniform(k: super::Uniform<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn normal(k: super::Normal<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn rand_int(k: super::RandInt<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn dropout(k: super::Dropout<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}
