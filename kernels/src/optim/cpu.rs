//! CPU code.

pub(super) fn advance(k: super::Advance<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn sgd(k: super::Sgd<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn adam(k: super::Adam<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn unscale(k: super::Unscale<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}

pub(super) fn update_scale(k: super::UpdateScale<'_>) -> crate::Result<()> {
    let _ = k;
    todo!()
}
