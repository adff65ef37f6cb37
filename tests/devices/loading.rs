//! Batches arrive whole, in order and on time to leave.

use crate::support::{cases, live};
use kiln::nn::{BatchRequest, DataLoader, Dataset, HostTensor};
use kiln::{DType, Device, Result, Tensor};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

cases![
    page_locked_memory_is_not_reused_while_it_is_copied,
    every_batch_of_a_loader_arrives_whole,
    pageable_copies_are_ordered_with_every_stream,
    leaving_early_is_quick,
    random_numbers_belong_to_samples,
    micro_batches_are_weighted_by_what_counts,
];

/// Elements of a batch that is large enough for its copy to take a while.
fn large(d: &Device) -> usize {
    if d.is_cuda() { 512 << 10 } else { 16 << 10 }
}

/// Whether all elements are `value`.
fn all(t: &Tensor, value: f32) -> Result<bool> {
    Ok(t.max_all()?.to_scalar::<f32>()? == value && t.min_all()?.to_scalar::<f32>()? == value)
}

fn page_locked_memory_is_not_reused_while_it_is_copied(d: &Device) -> Result<()> {
    let (n, stream) = (if d.is_cuda() { 8 << 20 } else { 64 << 10 }, d.copy_stream()?);
    for i in 0..200 {
        let mut block = d.pinned_pool().allocate(n)?;
        block.as_mut_slice()?.fill(i);
        let x = Tensor::from_pinned(&block, n, DType::U8, d, stream)?;
        drop(block);
        let mut other = d.pinned_pool().allocate(n)?;
        other.as_mut_slice()?.fill(255);
        assert_eq!((x.max_all()?.to_scalar::<u8>()?, x.min_all()?.to_scalar::<u8>()?), (i, i));
    }
    Ok(())
}

/// Sample `i` is a row full of `i`; its target is its random seed.
struct Rows {
    samples: usize,
    width: usize,
    wait: Duration,
    gone: Arc<AtomicBool>,
}

fn rows(samples: usize, width: usize) -> Rows {
    Rows { samples, width, wait: Duration::ZERO, gone: Arc::default() }
}

impl Dataset for Rows {
    fn len(&self) -> usize {
        self.samples
    }
    fn batch(&self, request: &BatchRequest<'_>) -> Result<(HostTensor, HostTensor)> {
        std::thread::sleep(self.wait);
        assert!(!self.gone.load(Ordering::SeqCst), "a batch was made after the loader was gone");
        let mut x = request.tensor::<f32>((request.indices().len(), self.width))?;
        for (row, &i) in x.as_mut_slice::<f32>()?.chunks_exact_mut(self.width).zip(request.indices()) {
            row.fill(i as f32);
        }
        let seeds: Vec<i64> = request.indices().iter().map(|&i| request.sample_seed(i) as i64).collect();
        Ok((x, request.tensor_from(&seeds, seeds.len())?))
    }
    fn weight(&self, indices: &[usize]) -> f64 {
        indices.iter().sum::<usize>() as f64
    }
}

fn every_batch_of_a_loader_arrives_whole(d: &Device) -> Result<()> {
    let loader = DataLoader::new(rows(200, large(d))).workers(2).pin_memory(d)?;
    for (i, batch) in loader.epoch(0).enumerate() {
        assert!(all(&batch?.0, i as f32)?, "batch {i}");
    }
    Ok(())
}

fn pageable_copies_are_ordered_with_every_stream(d: &Device) -> Result<()> {
    let other = d.new_stream()?;
    for i in 0..40 {
        for n in [16 << 10, 128 << 10, large(d)] {
            let x = Tensor::from_vec(vec![i as f32; n], n, d)?;
            assert!(all(&d.with_stream(&other, || x.affine(1.0, 1.0))?, i as f32 + 1.0)?);
        }
    }
    Ok(())
}

fn leaving_early_is_quick(d: &Device) -> Result<()> {
    let started = live(d);
    for round in 0..50 {
        let dataset = Rows { wait: Duration::from_millis(if round % 5 == 0 { 50 } else { 1 }), ..rows(1000, 8) };
        let gone = dataset.gone.clone();
        let loader = DataLoader::new(dataset).workers(1 + round % 4).pin_memory(d)?;
        let mut batches = loader.epoch(0);
        assert!(all(&batches.next().expect("a batch")?.0, 0.0)?);
        let start = Instant::now();
        if round % 2 == 0 {
            drop((batches, loader));
        } else {
            let consumer = catch_unwind(AssertUnwindSafe(move || {
                let _held = (batches, loader);
                resume_unwind(Box::new(()));
            }));
            assert!(consumer.is_err());
        }
        assert!(start.elapsed() < Duration::from_secs(1), "{:?} in round {round}", start.elapsed());
        gone.store(true, Ordering::SeqCst);
        assert_eq!(live(d), started);
    }
    Ok(())
}

fn random_numbers_belong_to_samples(d: &Device) -> Result<()> {
    let loader = |workers| DataLoader::new(rows(4096, 1)).batch_size(100).shuffle(9).workers(workers).pin_memory(d);
    let drawn = |batches: kiln::nn::Epoch| -> Result<Vec<(i64, i64)>> {
        let mut all = Vec::new();
        for batch in batches {
            let (x, y) = batch?;
            all.extend(x.flatten_all()?.to_dtype(DType::I64)?.to_vec::<i64>()?.into_iter().zip(y.to_vec::<i64>()?));
        }
        Ok(all)
    };
    let first = drawn(loader(0)?.epoch(0))?;
    for workers in [1, 4] {
        assert!(drawn(loader(workers)?.epoch(0))? == first, "{workers} workers");
        assert!(drawn(loader(workers)?.epoch_from(0, 30))? == first[3000..], "{workers} workers, resumed");
    }
    let distinct: HashSet<i64> = first.iter().map(|(_, seed)| *seed).collect();
    assert_eq!(distinct.len(), 4096);
    let second = drawn(loader(2)?.epoch(1))?;
    assert!(second.iter().all(|(_, seed)| !distinct.contains(seed)));
    Ok(())
}

fn micro_batches_are_weighted_by_what_counts(d: &Device) -> Result<()> {
    // 1 and 3 valid tokens, whose gradients sum to 10 and 6: the mean over tokens is 4.
    let loader = DataLoader::new(rows(4, 1)).sampler(|_| vec![vec![1], vec![3]]).pin_memory(d)?;
    let mut total = 0.0;
    for group in loader.epoch(0).accumulate(2) {
        for (weight, batch) in group {
            total += weight * if all(&batch?.0, 1.0)? { 10.0 / 1.0 } else { 6.0 / 3.0 };
        }
    }
    assert_eq!(total, 4.0);
    Ok(())
}
