//! A tour of the allocator: `cargo run -p kiln-alloc --example tour`. Runs on a GPU if there is one, else on the host.

use kiln_alloc::sources::{CudaSource, HostSource, SimulatedSource};
use kiln_alloc::{AllocError, Allocator, AllocatorConfig, Block, Category, Result, Source, copy, download, fill, upload};
use std::sync::Arc;

const MIB: usize = 1 << 20;

fn main() -> Result<()> {
    // A source is where bytes come from; an allocator hands them out and takes them back.
    let source: Arc<dyn Source> = match CudaSource::new(0) {
        Ok(cuda) => Arc::new(cuda),
        Err(reason) => {
            println!("No GPU: {reason}.\nThe host stands in for it.");
            Arc::new(HostSource::new()?)
        }
    };
    let allocator = Allocator::new(source, AllocatorConfig { limit: Some(256 * MIB), ..AllocatorConfig::default() })?;
    println!("On {}: {}.\n", allocator.info().name, allocator.info().memory());

    two_streams(&allocator)?;
    out_of_memory(&allocator)?;
    println!("{}", allocator.memory_summary_abbreviated());
    stitching()
}

/// A token is the only way to an address. Taking one on another stream makes that stream wait for what came before.
fn two_streams(allocator: &Allocator) -> Result<()> {
    let (compute, copies) = (allocator.compute_stream(), &allocator.new_stream()?);
    let a = allocator.allocate(4, copies, Category::Inputs)?;
    upload(&[1, 2, 3, 4], &mut a.write(copies)?, 0)?;

    let b = allocator.allocate(8, compute, Category::Activations)?;
    let mut token = b.write(compute)?;
    fill(&mut token, 9, 0, 8)?;
    copy(&a.read(compute)?, 0, &mut token, 2, 4)?;
    drop(token);
    // Dropped while the device may still read it: not used again before it is done with it. Nothing waits here.
    drop(a);

    let mut values = [0; 8];
    download(&b.read(compute)?, 0, &mut values)?;
    println!("Copied on one stream, read on another: {values:?}\n");
    Ok(())
}

/// Out of memory is an error like any other, and says where every byte is.
fn out_of_memory(allocator: &Allocator) -> Result<()> {
    let stream = allocator.compute_stream();
    let _weights = allocator.allocate(200 * MIB, stream, Category::Parameters)?;
    match allocator.allocate(100 * MIB, stream, Category::Activations) {
        Err(AllocError::OutOfMemory(report)) => println!("{report}\n"),
        other => println!("Not refused: {other:?}\n"),
    }
    // Nothing is broken by it.
    allocator.allocate(50 * MIB, stream, Category::Activations).map(drop)
}

/// Free pages that lie apart are mapped side by side at a new address, so a device that is full of holes is not full.
fn stitching() -> Result<()> {
    let source = Arc::new(SimulatedSource::new("a simulated GPU of 64 MiB", 64 * MIB));
    let allocator = Allocator::new(source.clone(), AllocatorConfig::default())?;
    let stream = allocator.compute_stream();
    let allocate = |mib: usize| allocator.allocate(mib * MIB, stream, Category::Temporaries);

    let mut blocks: Vec<Block> = (0..4).map(|_| allocate(16)).collect::<Result<_>>()?;
    drop((blocks.remove(3), blocks.remove(1)));
    let before = allocator.stats();
    println!("On {}, two blocks of 16 MiB are live and two are free:", allocator.info().name);
    println!("  idle {} MiB, the largest range {} MiB", before.inactive_split_bytes.all.current >> 20, before.largest_free >> 20);

    let large = allocate(32)?;
    let after = allocator.stats();
    println!("A block of {} MiB was still served:", large.bytes() / MIB);
    println!("  {} stitch of {} MiB", after.stitches - before.stitches, (after.stitched_bytes - before.stitched_bytes) >> 20);
    println!("  reserved {} MiB before, {} MiB after", before.reserved.current / MIB, after.reserved.current / MIB);
    println!("  {} driver calls, {:.1} ms on an H200", after.driver_calls, source.driver_time().as_secs_f64() * 1e3);
    Ok(())
}
