//! Data loading.

use kiln_alloc::Category;
use kiln_nn::{BatchRequest, DataLoader, Dataset, HostTensor, TensorDataset};
use kiln_tensor::{Device, Error, Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Samples 0, 1, .. as inputs; targets are their random seeds.
struct Numbers {
    len: usize,
    wait: Duration,
    made: Arc<AtomicUsize>,
}

fn numbers(len: usize) -> Numbers {
    Numbers { len, wait: Duration::ZERO, made: Arc::default() }
}

impl Dataset for Numbers {
    fn len(&self) -> usize {
        self.len
    }
    fn batch(&self, request: &BatchRequest<'_>) -> Result<(HostTensor, HostTensor)> {
        std::thread::sleep(self.wait);
        self.made.fetch_add(1, Ordering::Relaxed);
        let samples: Vec<i64> = request.indices().iter().map(|&i| i as i64).collect();
        let seeds: Vec<i64> = request.indices().iter().map(|&i| request.sample_seed(i) as i64).collect();
        Ok((request.tensor_from(&samples, samples.len())?, request.tensor_from(&seeds, seeds.len())?))
    }
}

type Read = Vec<(Vec<i64>, Vec<i64>)>;

fn read(batches: impl Iterator<Item = Result<(Tensor, Tensor)>>) -> Result<Read> {
    batches.map(|b| b.and_then(|(x, y)| Ok((x.to_vec()?, y.to_vec()?)))).collect()
}

#[test]
fn order_and_seeds_do_not_depend_on_the_number_of_workers() -> Result<()> {
    let run = |workers, epoch| read(DataLoader::new(numbers(103)).batch_size(10).shuffle(42).workers(workers).epoch(epoch));
    let (first, second) = (run(0, 0)?, run(0, 1)?);
    for workers in [1, 3, 16] {
        assert!(run(workers, 0)? == first && run(workers, 1)? == second, "{workers}");
    }
    assert_ne!(first, second);
    let mut all: Vec<i64> = first.iter().flat_map(|(x, _)| x.clone()).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..103));
    Ok(())
}

#[test]
fn seeds_are_those_of_sample_and_epoch() -> Result<()> {
    let seeds = |epoch, shuffle: bool| -> Result<std::collections::HashMap<i64, i64>> {
        let loader = DataLoader::new(numbers(50)).batch_size(8).seed(5);
        let loader = if shuffle { loader.shuffle(5) } else { loader };
        Ok(read(loader.epoch(epoch))?.into_iter().flat_map(|(x, y)| x.into_iter().zip(y)).collect())
    };
    assert_eq!(seeds(0, false)?, seeds(0, true)?);
    assert!(seeds(0, false)?.iter().all(|(i, seed)| seeds(1, false).unwrap()[i] != *seed));
    Ok(())
}

#[test]
fn an_epoch_resumes_at_any_batch() -> Result<()> {
    for workers in [0, 2] {
        let loader = DataLoader::new(numbers(45)).batch_size(10).shuffle(1).workers(workers);
        let whole = read(loader.epoch(3))?;
        for first in 0..=5 {
            assert_eq!(read(loader.epoch_from(3, first))?, whole[first.min(5)..]);
        }
    }
    Ok(())
}

#[test]
fn sizes_at_the_edges() -> Result<()> {
    let sizes = |loader: DataLoader| -> Result<Vec<usize>> { Ok(read(loader.epoch(0))?.iter().map(|(x, _)| x.len()).collect()) };
    let loader = |n: usize| DataLoader::new(numbers(n)).batch_size(4).workers(2);
    assert_eq!(sizes(loader(0))?, [0; 0]);
    assert_eq!(sizes(loader(3))?, [3]);
    assert_eq!(sizes(loader(3).drop_last(true))?, [0; 0]);
    assert_eq!(sizes(loader(9))?, [4, 4, 1]);
    assert_eq!(sizes(loader(9).drop_last(true))?, [4, 4]);
    assert_eq!((loader(9).batches(), loader(9).epoch(0).len()), (3, 3));
    let none = read(DataLoader::new(numbers(3)).batch_size(0).epoch(0));
    assert!(matches!(none, Err(Error::Argument { .. })));
    Ok(())
}

#[test]
fn a_sampler_lists_the_batches() -> Result<()> {
    let loader = DataLoader::new(numbers(9)).sampler(|epoch| vec![vec![8, 8], vec![epoch as usize]]).workers(2);
    let samples: Vec<Vec<i64>> = read(loader.epoch(5))?.into_iter().map(|(x, _)| x).collect();
    assert_eq!(samples, [vec![8, 8], vec![5]]);
    assert!(read(loader.epoch(9)).unwrap_err().to_string().contains("sample 9 of 9"));
    Ok(())
}

#[test]
fn rows_of_host_data_arrive_together() -> Result<()> {
    let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let dataset = TensorDataset::new(x, (4, 3), vec![0i64, 1, 2, 3], 4)?;
    for batch in DataLoader::new(dataset).batch_size(3).shuffle(9).workers(1).epoch(0) {
        let (x, y) = batch?;
        for (row, label) in x.to_vec2::<f32>()?.into_iter().zip(y.to_vec::<i64>()?) {
            assert_eq!(row[0], 3.0 * label as f32);
        }
    }
    assert!(TensorDataset::new(vec![0f32; 5], (2, 3), vec![0i64; 2], 2).is_err());
    assert!(TensorDataset::new(vec![0f32; 6], (2, 3), vec![0i64; 3], 3).is_err());
    Ok(())
}

#[test]
fn micro_batches_are_weighted_by_their_samples() -> Result<()> {
    let loader = DataLoader::new(numbers(10)).batch_size(4);
    let groups: Vec<Vec<f64>> = loader.epoch(0).accumulate(2).map(|group| group.map(|(w, _)| w).collect()).collect();
    assert_eq!(groups, [vec![0.5, 0.5], vec![1.0]]);
    let uneven: Vec<Vec<f64>> = loader.epoch(0).accumulate(3).map(|group| group.map(|(w, _)| w).collect()).collect();
    assert_eq!(uneven, [[0.4, 0.4, 0.2]]);
    Ok(())
}

/// Sample `i` has `i` valid tokens.
struct Tokens(Numbers);

impl Dataset for Tokens {
    fn len(&self) -> usize {
        self.0.len
    }
    fn batch(&self, request: &BatchRequest<'_>) -> Result<(HostTensor, HostTensor)> {
        self.0.batch(request)
    }
    fn weight(&self, indices: &[usize]) -> f64 {
        indices.iter().sum::<usize>() as f64
    }
}

#[test]
fn micro_batches_are_weighted_by_what_the_dataset_counts() -> Result<()> {
    // 1 and 3 valid tokens with gradient sums 10 and 6, so means 10 and 2.
    let loader = DataLoader::new(Tokens(numbers(4))).sampler(|_| vec![vec![1], vec![3]]);
    let group = loader.epoch(0).accumulate(2).next().unwrap();
    let total: f64 = group.zip([10.0, 2.0]).map(|((weight, _), mean)| weight * mean).sum();
    assert_eq!(total, 4.0);
    Ok(())
}

#[test]
fn a_group_left_early_does_not_leak_into_the_next() -> Result<()> {
    let mut firsts = Vec::new();
    for mut group in DataLoader::new(numbers(7)).workers(1).epoch(0).accumulate(3) {
        let (_, batch) = group.next().unwrap();
        firsts.push(batch?.0.to_vec::<i64>()?[0]);
    }
    assert_eq!(firsts, [0, 3, 6]);
    let failing: Vec<_> = DataLoader::new(numbers(7)).batch_size(0).epoch(0).accumulate(3).flatten().collect();
    assert!(failing.len() == 1 && failing[0].1.is_err());
    Ok(())
}

/// Panics or fails at some samples.
struct Faulty;

impl Dataset for Faulty {
    fn len(&self) -> usize {
        4
    }
    fn batch(&self, request: &BatchRequest<'_>) -> Result<(HostTensor, HostTensor)> {
        match request.indices()[0] {
            1 => panic!("no sample here"),
            2 => Err(Error::message("unreadable")),
            _ => Ok((request.tensor_from(&[1f32], 1)?, request.tensor_from(&[1f32], 1)?)),
        }
    }
}

#[test]
fn panics_and_errors_of_a_dataset_reach_the_consumer_in_order() {
    for workers in [0, 2] {
        let loader = DataLoader::new(Faulty).workers(workers);
        let results: Vec<_> = loader.epoch(0).collect();
        let text = |i: usize| results[i].as_ref().unwrap_err().to_string();
        assert!(results[0].is_ok() && results[3].is_ok() && results.len() == 4);
        assert!(text(1).contains("no sample here") && text(1).contains("batch 1"), "{}", text(1));
        assert_eq!(text(2), "unreadable");
        // The threads survive.
        assert!(loader.epoch(1).next().unwrap().is_ok());
    }
}

#[test]
fn leaving_early_is_quick_and_joins_the_threads() -> Result<()> {
    let start = Instant::now();
    for _ in 0..5 {
        let dataset = Numbers { wait: Duration::from_millis(50), ..numbers(1000) };
        let made = dataset.made.clone();
        let loader = DataLoader::new(dataset).workers(4);
        loader.epoch(0).next().unwrap()?;
        let dropped = Instant::now();
        drop(loader);
        assert!(dropped.elapsed() < Duration::from_secs(1));
        let after = made.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(made.load(Ordering::Relaxed), after);
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    Ok(())
}

#[test]
fn five_hundred_epochs_left_early() -> Result<()> {
    let loader = DataLoader::new(Numbers { wait: Duration::from_micros(200), ..numbers(1000) }).workers(3);
    for epoch in 0..500 {
        let (x, _) = loader.epoch(epoch).next().unwrap()?;
        assert_eq!(x.to_vec::<i64>()?, [0]);
    }
    let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _batches = loader.epoch(0);
        panic!("a consumer's");
    }));
    assert!(panicking.is_err());
    assert_eq!(read(loader.epoch(0))?.len(), 1000);
    Ok(())
}

#[test]
fn workers_stay_a_few_batches_ahead() -> Result<()> {
    let dataset = numbers(1000);
    let made = dataset.made.clone();
    let loader = DataLoader::new(dataset).workers(2);
    let mut batches = loader.epoch(0);
    batches.next().unwrap()?;
    std::thread::sleep(Duration::from_millis(50));
    let ahead = made.load(Ordering::Relaxed);
    assert!((2..=6).contains(&ahead), "{ahead}");
    Ok(())
}

#[test]
fn an_epoch_outlives_its_loader() -> Result<()> {
    let batches = DataLoader::new(numbers(20)).workers(2).epoch(0);
    assert_eq!(read(batches)?.len(), 20);
    Ok(())
}

#[test]
fn on_a_dry_run_batches_take_memory_as_inputs() -> Result<()> {
    let device = Device::dry_run("1GiB")?;
    let dataset = TensorDataset::new(vec![0f32; 64 * 256], (64, 256), vec![0i64; 64], 64)?;
    let loader = DataLoader::new(dataset).batch_size(16).workers(2).pin_memory(&device)?;
    let inputs = || device.memory_stats().category(Category::Inputs).current;
    let mut batches = loader.epoch(0);
    let first = batches.next().unwrap()?;
    let both = inputs();
    assert!(both >= 2 * 16 * 256 * 4, "{both}");
    drop(first);
    for batch in batches {
        batch?;
        assert!(inputs() <= both);
    }
    assert_eq!(inputs(), 0);
    Ok(())
}

#[test]
fn one_group_may_hold_a_whole_epoch() -> Result<()> {
    let loader = DataLoader::new(numbers(10)).batch_size(3);
    let groups = |first| loader.epoch_from(0, first).accumulate(usize::MAX).map(|group| group.count()).collect::<Vec<_>>();
    assert_eq!((groups(0), groups(2), groups(usize::MAX)), (vec![4], vec![2], vec![]));
    Ok(())
}
