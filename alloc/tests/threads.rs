//! Threads that share an allocator. `KILN_STRESS_SECONDS` says for how long; 5 seconds without it.

mod common;
use common::{MIB, allocator, late, random};
use kiln_alloc::sources::HostSource;
use kiln_alloc::*;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 8;
/// A round takes microseconds; if nothing has ended so long after the time is up, the threads wait for each other.
const STUCK: Duration = Duration::from_secs(120);

fn seconds() -> Duration {
    let asked = std::env::var("KILN_STRESS_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(asked.unwrap_or(5))
}

/// A thread of the stress: allocates on streams of its own, hands blocks on to its neighbour and uses those it gets.
struct Worker {
    gpu: Arc<sources::SimulatedSource>,
    a: Allocator,
    outbox: Sender<Block>,
    inbox: Receiver<Block>,
    seed: u64,
}

impl Worker {
    fn run(self, until: Instant) -> usize {
        let Worker { gpu, a, outbox, inbox, seed } = self;
        let mut random = random(seed);
        let mut stream = a.new_stream().unwrap();
        let mut pool = None;
        let mut rounds = 0;
        while Instant::now() < until {
            rounds += 1;
            let bytes = if random().is_multiple_of(2) { random() % 5000 } else { random() % (6 * MIB) };
            let category = Category::ALL[random() % 7];
            let result = match (&pool, random() % 8) {
                (Some(pool), 0) => PrivatePool::allocate(pool, bytes, &stream, category),
                _ => a.allocate(bytes, &stream, category),
            };
            match result {
                Ok(block) => {
                    gpu.touch(&block, &stream, true).unwrap();
                    outbox.send(block).unwrap_or(());
                }
                Err(AllocError::OutOfMemory(_)) => gpu.finish(&stream),
                Err(error) => panic!("{error}"),
            }
            for block in inbox.try_iter().take(1 + random() % 3) {
                gpu.touch(&block, &stream, false).unwrap();
                if random().is_multiple_of(2) {
                    gpu.touch(&block, a.compute_stream(), true).unwrap();
                }
            }
            match random() % 256 {
                0..4 => stream = a.new_stream().unwrap(),
                4 | 5 => a.empty_cache().unwrap(),
                6 => a.trim(random() % (256 * MIB)).unwrap(),
                7 => a.synchronize().unwrap(),
                8 => pool = a.private_pool().ok(),
                9 => pool = None,
                10 => a.set_limit(Some((64 + random() % 192) * MIB)),
                11 => drop((a.stats(), a.memory_summary())),
                12..32 => gpu.finish(&stream),
                _ => {}
            }
        }
        rounds
    }
}

#[test]
fn eight_threads_exchange_blocks_between_streams_without_losing_any() {
    let gpu = late(256 * MIB);
    let a = allocator(&gpu);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel::<Block>()).unzip();
    let until = Instant::now() + seconds();
    let (done, ended) = channel();
    for (n, inbox) in receivers.into_iter().enumerate() {
        let (gpu, a, outbox, seed) = (gpu.clone(), a.clone(), senders[(n + 1) % THREADS].clone(), n as u64 + 1);
        let worker = Worker { gpu, a, outbox, inbox, seed };
        let done = done.clone();
        thread::spawn(move || done.send(worker.run(until)));
    }
    drop((senders, done));
    for _ in 0..THREADS {
        let rounds = ended.recv_timeout(seconds() + STUCK).expect("a thread panicked or waits for ever");
        assert!(rounds > 100, "{rounds}");
    }
    // The last to end drops what it was sent.
    while a.stats().live_blocks > 0 {
        thread::yield_now();
    }
    a.empty_cache().unwrap();
    let stats = a.stats();
    assert_eq!((stats.allocated.current, stats.reserved.current, stats.pending, stats.live_blocks), (0, 0, 0, 0));
    gpu.finish_all();
    assert_eq!(gpu.breaches(), []);
}

#[test]
fn host_bytes_of_threads_stay_apart() {
    let a = Allocator::new(Arc::new(HostSource::new().unwrap()), AllocatorConfig::default()).unwrap();
    thread::scope(|scope| {
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
