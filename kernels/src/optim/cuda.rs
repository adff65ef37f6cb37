//! CUDA launches.

pub(super) fn advance(
    k: super::Advance<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn sgd(
    k: super::Sgd<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn adam(
    k: super::Adam<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn unscale(
    k: super::Unscale<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn update_scale(
    k: super::UpdateScale<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}
