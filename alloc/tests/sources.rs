//! Memory sources by themselves, with no allocator above.

use kiln_alloc::sources::{CudaMemory, CudaOptions, CudaSource, HostSource, SimulatedSource};
use kiln_alloc::*;

const MIB: usize = 1 << 20;

#[test]
fn a_fill_sets_every_byte_of_its_range_and_no_other() {
    let host = HostSource::new().unwrap();
    let (address, handle) = (host.reserve(2 * MIB).unwrap(), host.create(2 * MIB).unwrap());
    host.map(address, 2 * MIB, handle).unwrap();
    let mut back = [0; 8];
    // SAFETY: the range is mapped and larger than what is touched.
    unsafe {
        host.fill(address + 2, 0xA5, 4, RawStream(0)).unwrap();
        host.copy_out(back.as_mut_ptr(), address, 8, RawStream(0)).unwrap();
    }
    assert_eq!(back, [0, 0, 0xA5, 0xA5, 0xA5, 0xA5, 0, 0]);
}

#[test]
fn a_source_says_how_it_takes_memory() {
    let mut info = SimulatedSource::new("dry", MIB).info().clone();
    assert_eq!(info.memory(), "virtual memory, 2.00 MiB pages");
    info.virtual_memory = false;
    assert_eq!(info.memory(), "whole allocations");
    info.kind = SourceKind::Cuda;
    assert_eq!(info.memory(), "cuMemAlloc");
}

/// Either there is a driver, or every way to ask for it says that there is none.
#[test]
fn a_missing_driver_is_an_error_with_any_options() {
    for memory in [CudaMemory::Auto, CudaMemory::Virtual, CudaMemory::Plain] {
        let options = CudaOptions { memory, peers: vec![usize::MAX], exportable: true };
        assert!(CudaSource::with(usize::MAX, options).is_err_and(|error| matches!(error, SourceError::NoCuda(_))));
    }
}
