//! CUDA launches.

pub(super) fn uniform(
    k: super::Uniform<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn normal(
    k: super::Normal<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn rand_int(
    k: super::RandInt<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn dropout(
    k: super::Dropout<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}
