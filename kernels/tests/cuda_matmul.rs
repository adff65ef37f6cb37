//! Matrix products on a CUDA device, where there is one; else each is reported as ignored.

mod matmul_cases;

use kiln_alloc::sources::CudaSource;
use kiln_alloc::{Allocator, AllocatorConfig, Category};
use kiln_kernels::cuda::Cuda;
use kiln_kernels::matmul::BLAS_WORKSPACE_BYTES;
use kiln_kernels::{Backend, DType};
use libtest_mimic::{Arguments, Failed, Trial};
use matmul_cases::{Case, cases};
use std::sync::{Arc, OnceLock};

fn device() -> &'static (Allocator, Backend) {
    static DEVICE: OnceLock<(Allocator, Backend)> = OnceLock::new();
    DEVICE.get_or_init(new_device)
}

fn new_device() -> (Allocator, Backend) {
    let allocator = Allocator::new(Arc::new(CudaSource::new(0).unwrap()), AllocatorConfig::default()).unwrap();
    let backend = Backend::Cuda(Arc::new(Cuda::new(0, &allocator).unwrap()));
    (allocator, backend)
}

fn check(case: &Case) -> Result<(), Failed> {
    let (allocator, backend) = device();
    Ok(case.check(allocator, backend)?)
}

fn sixteen_bit_floats_add_up_in_f32() -> Result<(), Failed> {
    let (allocator, backend) = device();
    let case = Case { out: DType::F32, ..Case::new(DType::F16, [1, 1, 70_000, 1]) };
    let ones = vec![1.0; 70_000];
    assert_eq!(case.run(allocator, backend, &ones, &ones, &[0.0])?, [70_000.0]);
    Ok(())
}

fn a_stream_holds_one_workspace_until_released() -> Result<(), Failed> {
    let (allocator, backend) = new_device();
    let held = || allocator.stats().categories[Category::Workspace as usize].current;
    let before = held();
    for _ in 0..2 {
        Case::new(DType::F32, [1, 64, 64, 64]).check(&allocator, &backend)?;
        Case::new(DType::F32, [2, 64, 64, 64]).check(&allocator, &backend)?;
        assert_eq!(held() - before, BLAS_WORKSPACE_BYTES);
        backend.release_workspaces();
        assert_eq!(held(), before);
    }
    Ok(())
}

fn the_same_product_twice_is_the_same_bits() -> Result<(), Failed> {
    let (allocator, backend) = device();
    for dtype in [DType::F32, DType::F16] {
        let case = Case::new(dtype, [1, 64, 8192, 64]);
        let x = matmul_cases::numbers(dtype, 64 * 8192, 1);
        let run = || case.run(allocator, backend, &x, &x, &[0.0; 64 * 64]);
        assert!(run()? == run()?, "{dtype}");
    }
    Ok(())
}

fn main() {
    let missing = kiln_alloc::driver::probe().inspect_err(|reason| println!("ignored: {reason}")).is_err();
    let mut trials: Vec<Trial> = cases().into_iter().map(|(name, case)| Trial::test(name, move || check(&case))).collect();
    let tf32 = Case { tf32: true, ..Case::new(DType::F32, [1, 256, 512, 128]) };
    trials.push(Trial::test("f32 on tensor cores", move || check(&tf32)));
    trials.push(Trial::test("16-bit floats add up in f32", sixteen_bit_floats_add_up_in_f32));
    trials.push(Trial::test("a stream holds one workspace until released", a_stream_holds_one_workspace_until_released));
    trials.push(Trial::test("the same product twice is the same bits", the_same_product_twice_is_the_same_bits));
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(missing)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
