//! Threads that share an allocator.

mod common;
use common::{MIB, allocator, late, random};
use kiln_alloc::sources::HostSource;
use kiln_alloc::*;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[test]
fn threads_exchange_blocks_without_losing_any() {
    let gpu = late(256 * MIB);
    let a = allocator(&gpu);
    std::thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| channel::<Block>()).unzip();
        for (n, inbox) in receivers.into_iter().enumerate() {
            let (a, outbox, gpu) = (a.clone(), senders[(n + 1) % 4].clone(), &gpu);
            scope.spawn(move || {
                let mut random = random(n as u64 + 1);
                let mut stream = a.new_stream().unwrap();
                let until = Instant::now() + Duration::from_millis(800);
                let mut round = 0;
                while Instant::now() < until {
                    round += 1;
                    match a.allocate(random() % (4 * MIB), &stream, Category::Temporaries) {
                        Ok(block) => {
                            gpu.touch(&block, &stream, true).unwrap();
                            outbox.send(block).unwrap_or(());
                        }
                        Err(AllocError::OutOfMemory(_)) => gpu.finish(&stream),
                        Err(error) => panic!("{error}"),
                    }
                    for block in inbox.try_iter() {
                        gpu.touch(&block, &stream, false).unwrap();
                        gpu.touch(&block, a.compute_stream(), true).unwrap();
                    }
                    match random() % 64 {
                        0 => stream = a.new_stream().unwrap(),
                        1 => a.empty_cache().unwrap(),
                        2..8 => gpu.finish(&stream),
                        _ => {}
                    }
                }
                assert!(round > 100);
            });
        }
    });
    a.empty_cache().unwrap();
    let stats = a.stats();
    assert_eq!((stats.allocated.current, stats.reserved.current, stats.pending, stats.live_blocks), (0, 0, 0, 0));
    drop(a);
    assert!(gpu.is_pristine());
}

#[test]
fn host_bytes_of_threads_stay_apart() {
    let a = Allocator::new(Arc::new(HostSource::new().unwrap()), AllocatorConfig::default()).unwrap();
    std::thread::scope(|scope| {
        for n in 0..4u8 {
            let a = &a;
            scope.spawn(move || {
                let mut random = random(u64::from(n) + 1);
                for _ in 0..2000 {
                    let block = a.allocate(random() % 5000, a.compute_stream(), Category::Temporaries).unwrap();
                    block.write(a.compute_stream()).unwrap().as_mut_slice().unwrap().fill(n);
                    assert!(block.read(a.compute_stream()).unwrap().as_slice().unwrap().iter().all(|b| *b == n));
                }
            });
        }
    });
    assert_eq!(a.stats().allocated.current, 0);
}
