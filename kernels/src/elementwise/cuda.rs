//! CUDA launches.

pub(super) fn map(
    k: super::Map<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}

pub(super) fn map_in_place(
    k: super::MapInPlace<'_>,
    cuda: &crate::cuda::Cuda,
    stream: &kiln_alloc::Stream,
    workspace: Option<&mut kiln_alloc::Write<'_>>,
) -> crate::Result<()> {
    let _ = (k, cuda, stream, workspace);
    todo!()
}
