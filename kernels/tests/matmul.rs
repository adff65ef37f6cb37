//! Matrix products on the CPU and on dry runs.

mod matmul_cases;

use kiln_alloc::sources::{HostSource, SimulatedSource};
use kiln_alloc::{Allocator, AllocatorConfig, Category, Source, Stream};
use kiln_kernels::matmul::{BLAS_WORKSPACE_BYTES, BlasWorkspace, MatMul};
use kiln_kernels::{Arg, Backend, DType, Dry, KernelError, Layout, OutArg};
use matmul_cases::{Case, cases, numbers};
use std::sync::Arc;

fn allocator(source: impl Source) -> Allocator {
    Allocator::new(Arc::new(source), AllocatorConfig::default()).unwrap()
}
fn host() -> Allocator {
    allocator(HostSource::new().unwrap())
}

#[test]
fn products_of_every_form_match_sums_in_f64() {
    let host = host();
    let wrong: Vec<String> =
        cases().iter().filter_map(|(name, case)| Some(format!("{name}: {}", case.check(&host, &Backend::Cpu).err()?))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sixteen_bit_floats_add_up_in_f32() {
    let case = Case { out: DType::F32, ..Case::new(DType::F16, [1, 1, 70_000, 1]) };
    let ones = vec![1.0; 70_000];
    assert_eq!(case.run(&host(), &Backend::Cpu, &ones, &ones, &[0.0]).unwrap(), [70_000.0]);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let host = host();
    let sizes = [[1, 700, 300, 600], [6, 80, 200, 90], [1, 64, 3000, 512], [200, 9, 33, 21]];
    for case in [DType::F32, DType::F64, DType::F16, DType::BF16].iter().flat_map(|&t| sizes.map(|s| Case::new(t, s))) {
        let [batch, m, k, n] = case.sizes;
        let (a, b) = (numbers(case.dtype, batch * m * k, 1), numbers(case.dtype, batch * k * n, 2));
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| case.run(&host, &Backend::Cpu, &a, &b, &vec![0.0; batch * m * n]).unwrap())
        };
        let one = run(1);
        assert!(run(2) == one && run(3) == one && run(7) == one, "{case:?}");
    }
}

#[test]
fn types_without_a_product_are_an_error_on_every_backend() {
    let simulated = allocator(SimulatedSource::new("dry", 1 << 30));
    for (allocator, backend) in [
        (host(), Backend::Cpu),
        (simulated.clone(), Backend::Dry(Arc::new(Dry::new(&simulated).expect("a simulated device has memory")))),
    ] {
        for (dtype, out, wrong) in [
            (DType::F32, DType::F64, DType::F64),
            (DType::F64, DType::F32, DType::F32),
            (DType::F32, DType::F16, DType::F16),
            (DType::F16, DType::BF16, DType::BF16),
        ] {
            let case = Case { out, ..Case::new(dtype, [1, 1, 1, 1]) };
            let error = case.run(&allocator, &backend, &[1.0], &[1.0], &[0.0]).unwrap_err();
            assert!(matches!(error, KernelError::DType { kernel: "matmul", dtype } if dtype == wrong), "{error}");
        }
    }
}

#[test]
fn a_dry_run_holds_one_workspace_a_stream_until_released() {
    let allocator = allocator(SimulatedSource::new("dry", 1 << 30));
    let backend = Backend::Dry(Arc::new(Dry::new(&allocator).expect("a simulated device has memory")));
    let idle = allocator.stats().categories[Category::Workspace as usize].current;
    let held = || allocator.stats().categories[Category::Workspace as usize].current - idle;
    let run = |sizes: [usize; 4]| {
        let ones = |count| vec![1.0; count];
        let [batch, m, k, n] = sizes;
        let (a, b, old) = (ones(batch * m * k), ones(batch * k * n), ones(batch * m * n));
        // Values of a dry run cannot be read back.
        Case::new(DType::F32, sizes).run(&allocator, &backend, &a, &b, &old).unwrap_err();
    };
    run([1, 2, 0, 2]);
    assert_eq!(held(), 0);
    run([1, 2, 2, 2]);
    run([1, 2, 2, 2]);
    assert_eq!(held(), BLAS_WORKSPACE_BYTES);
    backend.release_workspaces();
    assert_eq!(held(), 0);
    run([1, 2, 2, 2]);
    assert_eq!(held(), BLAS_WORKSPACE_BYTES);
}

#[test]
fn a_ninth_stream_makes_the_longest_unused_workspace_go() {
    let allocator = allocator(SimulatedSource::new("dry", 1 << 30));
    let workspaces = BlasWorkspace::new(&allocator);
    let streams: Vec<Stream> = (0..9).map(|_| allocator.new_stream().unwrap()).collect();
    let address = |stream: &Stream| workspaces.with(stream, |block| Ok(block.address())).unwrap();
    let addresses: Vec<u64> = streams[..8].iter().map(address).collect();
    assert!((1..8).all(|i| !addresses[..i].contains(&addresses[i])));
    address(&streams[0]);
    address(&streams[8]);
    assert_eq!(allocator.stats().categories[Category::Workspace as usize].current, 8 * BLAS_WORKSPACE_BYTES);
    assert_eq!(address(&streams[0]), addresses[0]);
}

#[test]
fn what_a_blas_takes() {
    assert!(MatMul::takes(3, 5, 5, 1) && MatMul::takes(3, 5, 8, 1) && MatMul::takes(3, 5, 1, 3));
    assert!(MatMul::takes(1, 5, 0, 1) && MatMul::takes(5, 1, 1, 0) && MatMul::takes(1, 1, 0, 0));
    assert!(!MatMul::takes(3, 5, 10, 2) && !MatMul::takes(3, 5, 0, 1) && !MatMul::takes(3, 5, 4, 1));
}

#[test]
fn operands_that_do_not_fit_are_an_error() {
    let host = host();
    let stream = host.compute_stream();
    let block = || host.allocate(64, stream, Category::Temporaries).unwrap();
    let (a, b, c) = (block(), block(), block());
    let good = Layout::contiguous(&[1, 2, 2]);
    for (left, right, out) in [
        (&Layout::contiguous(&[1, 2, 3]), &good, &good),
        (&good, &good, &Layout::contiguous(&[1, 2, 3])),
        (&good, &good, &Layout::new(&[1, 2, 2], &[4, 1, 2], 0)),
        (&Layout::new(&[1, 2, 2], &[0, 4, 2], 0), &good, &good),
        (&good, &Layout::contiguous(&[2, 2]), &good),
    ] {
        let (a, b, mut c) = (a.read(stream).unwrap(), b.read(stream).unwrap(), c.write(stream).unwrap());
        let (a, b) = (Arg::new(&a, DType::F32, left), Arg::new(&b, DType::F32, right));
        let product = MatMul { a, b, out: OutArg::new(&mut c, DType::F32, out), alpha: 1.0, beta: 0.0, tf32: false };
        let error = Backend::Cpu.run(product, stream, None).unwrap_err();
        assert!(matches!(error, KernelError::Operand(_)), "{error}");
    }
}
