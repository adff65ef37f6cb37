//! CUDA launches.

pub(super) fn copy(
    k: super::Copy<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn fill(
    k: super::Fill<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn arange(
    k: super::Arange<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn eye(
    k: super::Eye<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}
