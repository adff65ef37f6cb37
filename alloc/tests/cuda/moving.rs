//! Pages that move on a real GPU, with work in flight, and what the values say about it.

use super::{MIB, Outcome, pattern, read_back, take};
use kiln_alloc::policies::Torch;
use kiln_alloc::sources::{CudaMemory, CudaOptions, CudaSource};
use kiln_alloc::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn allocator(memory: CudaMemory, config: AllocatorConfig) -> Result<Allocator> {
    Allocator::new(Arc::new(CudaSource::with(0, CudaOptions { memory, ..CudaOptions::default() })?), config)
}
fn limited(bytes: usize) -> AllocatorConfig {
    AllocatorConfig { limit: Some(bytes), ..AllocatorConfig::default() }
}
fn random(seed: u64) -> impl FnMut() -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize
    }
}
/// Whether a block holds `value` at its start, its end and once each 2 MiB.
fn holds(block: &Block, value: u8, stream: &Stream) -> Result<bool> {
    let read = block.read(stream)?;
    let mut window = [0; 64];
    for at in (0..block.bytes() - 64).step_by(2 * MIB).chain([block.bytes() - 64]) {
        download(&read, at, &mut window)?;
        if window != [value; 64] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Scenario 4 with work in flight: the pages of dropped blocks move while a second stream still reads them.
pub fn free_pages_move_while_work_is_in_flight() -> Outcome {
    let a = allocator(CudaMemory::Virtual, limited(160 * MIB))?;
    let (s0, s1) = (a.compute_stream(), &a.new_stream()?);
    for round in 0..50u8 {
        let copies: Vec<Block> = (0..2).map(|_| take(&a, 16 * MIB, s1)).collect::<Result<_>>()?;
        let mut blocks: Vec<Block> = (0..8).map(|_| take(&a, 16 * MIB, s0)).collect::<Result<_>>()?;
        for (i, block) in (0..).zip(&blocks) {
            fill(&mut block.write(s0)?, round ^ i, 0, 16 * MIB)?;
        }
        // Long enough that the pages move under it.
        for _ in 0..20 {
            copy(&blocks[0].read(s1)?, 0, &mut copies[0].write(s1)?, 0, 16 * MIB)?;
            copy(&blocks[2].read(s1)?, 0, &mut copies[1].write(s1)?, 0, 16 * MIB)?;
        }
        drop((blocks.remove(2), blocks.remove(0)));
        let whole = take(&a, 32 * MIB, s0)?;
        fill(&mut whole.write(s0)?, 0xEE, 0, 32 * MIB)?;
        assert!(holds(&copies[0], round, s1)? && holds(&copies[1], round ^ 2, s1)?, "round {round}");
        assert!(holds(&whole, 0xEE, s0)?);
        for (i, block) in [1, 3, 4, 5, 6, 7].into_iter().zip(&blocks) {
            assert!(holds(block, round ^ i, s0)?, "block {i} of round {round}");
        }
    }
    assert!(a.stats().stitches > 0 && a.stats().ooms == 0);
    Ok(())
}

fn churn(a: &Allocator, most: usize) -> Outcome {
    let streams = [a.compute_stream().clone(), a.new_stream()?];
    let mut random = random(7);
    let mut live: Vec<(Block, u8)> = Vec::new();
    for round in 0..4000usize {
        let stream = &streams[random() % 2];
        let bytes = 64 + random() % most;
        match take(a, bytes, stream) {
            Ok(block) => {
                fill(&mut block.write(stream)?, round as u8, 0, bytes)?;
                live.push((block, round as u8));
            }
            Err(AllocError::OutOfMemory(_)) => {
                for _ in 0..live.len() / 2 {
                    drop(live.swap_remove(random() % live.len()));
                }
            }
            Err(error) => return Err(error.into()),
        }
        if live.len() > 40 {
            let (block, value) = live.swap_remove(random() % live.len());
            assert!(holds(&block, value, &streams[random() % 2])?, "a block of round {value} in round {round}");
        }
    }
    for (block, value) in &live {
        assert!(holds(block, *value, a.compute_stream())?);
    }
    Ok(())
}

pub fn values_survive_when_everything_moves_under_a_limit() -> Outcome {
    let a = allocator(CudaMemory::Virtual, limited(192 * MIB))?;
    churn(&a, 12 * MIB)?;
    println!("{} stitches, {} retries", a.stats().stitches, a.stats().retries);
    assert!(a.stats().stitches > 10);
    Ok(())
}
pub fn values_survive_without_virtual_memory() -> Outcome {
    for config in [limited(256 * MIB), AllocatorConfig { limit: Some(256 * MIB), ..AllocatorConfig::with_policy(Torch) }] {
        let a = allocator(CudaMemory::Plain, config)?;
        churn(&a, 12 * MIB)?;
        assert_eq!(a.stats().stitches, 0);
        a.empty_cache()?;
        assert_eq!((a.stats().live_blocks, a.stats().reserved.current), (0, 0));
    }
    Ok(())
}

pub fn a_private_pool_keeps_its_addresses() -> Outcome {
    let a = allocator(CudaMemory::Virtual, limited(64 * MIB))?;
    let (s, pool) = (a.compute_stream(), a.private_pool()?);
    let first = pool.allocate(8 * MIB, s, Category::Temporaries)?;
    let address = first.read(s)?.address();
    fill(&mut first.write(s)?, 5, 0, 8 * MIB)?;
    drop(first);
    // All of the rest, which could use those pages well.
    let rest = take(&a, 56 * MIB, s)?;
    assert!(take(&a, 2 * MIB, s).is_err());
    let again = pool.allocate(8 * MIB, s, Category::Temporaries)?;
    assert_eq!(again.read(s)?.address(), address);
    drop((again, rest, pool));
    // Its pages are everybody's now.
    let _all = take(&a, 64 * MIB, s)?;
    Ok(())
}

pub fn freed_bytes_are_poisoned_on_request() -> Outcome {
    let a = allocator(CudaMemory::Auto, AllocatorConfig { poison: true, ..AllocatorConfig::default() })?;
    let s = a.compute_stream();
    let block = take(&a, 3 * MIB, s)?;
    upload(&pattern(3 * MIB, 1), &mut block.write(s)?, 0)?;
    drop(block);
    assert!(read_back(&take(&a, 3 * MIB, s)?, s)?.iter().all(|byte| *byte == 0xFF));
    Ok(())
}

/// For `KILN_STRESS_SECONDS` seconds, or five.
pub fn eight_threads_cross_streams() -> Outcome {
    let seconds = std::env::var("KILN_STRESS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let a = allocator(CudaMemory::Auto, limited(2048 * MIB))?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let rounds = std::thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..8).map(|_| std::sync::mpsc::channel::<(Block, u8)>()).unzip();
        let threads: Vec<_> = (0u8..)
            .zip(receivers)
            .map(|(n, inbox)| {
                let (a, outbox) = (a.clone(), senders[(usize::from(n) + 1) % 8].clone());
                scope.spawn(move || -> Result<u64> {
                    let mut random = random(u64::from(n) + 1);
                    let mut stream = a.new_stream()?;
                    let mut rounds = 0;
                    while Instant::now() < until {
                        rounds += 1;
                        let bytes = 64 + random() % (16 * MIB);
                        match take(&a, bytes, &stream) {
                            Ok(block) => {
                                fill(&mut block.write(&stream)?, n, 0, bytes)?;
                                outbox.send((block, n)).unwrap_or(());
                            }
                            Err(AllocError::OutOfMemory(_)) => {}
                            Err(error) => return Err(error),
                        }
                        for (block, value) in inbox.try_iter() {
                            assert!(
                                !random().is_multiple_of(8) || holds(&block, value, &stream)?,
                                "a block of thread {value} was damaged"
                            );
                        }
                        match random() % 256 {
                            0 => stream = a.new_stream()?,
                            1 => a.empty_cache()?,
                            _ => {}
                        }
                    }
                    Ok(rounds)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread panicked")).sum::<Result<u64>>()
    })?;
    a.synchronize()?;
    a.empty_cache()?;
    let stats = a.stats();
    println!("{rounds} rounds, {} stitches, {} steals, {} refused", stats.stitches, stats.steals, stats.ooms);
    assert_eq!((stats.live_blocks, stats.allocated.current, stats.pending, stats.reserved.current), (0, 0, 0, 0));
    Ok(())
}
