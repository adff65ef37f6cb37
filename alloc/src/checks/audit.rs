//! What holds between any two calls of one thread.

use crate::core::{Shared, lock};
use crate::sources::SimulatedSource;
use crate::stats::Pool;
use crate::table::{Record, State};
use crate::{Allocator, Category, MemoryStats};

/// Everything is recounted from the block table and compared with the counters, the pages and, where given, the driver. `empty`
/// is how many blocks of no bytes live, which no table knows.
pub(super) fn audit(a: &Allocator, gpu: Option<&SimulatedSource>, empty: usize) {
    let pages = lock(&a.core.slow);
    let mut shared = a.core.locked();
    let pieces: Vec<Record> = shared.pieces().copied().collect();
    tiled(&shared, a.info().virtual_memory);

    let sum = |keep: &dyn Fn(&Record) -> bool| pieces.iter().filter(|r| keep(r)).map(|r| r.size).sum::<usize>();
    // No call is going on, so what is held are addresses that pages have left and the device has not.
    let leaving = sum(&|r| r.state == State::Held);
    let memory = sum(&|r| !matches!(r.state, State::Held | State::Hole));
    if let Some(gpu) = gpu {
        assert_eq!((memory, memory + leaving), gpu.bytes_taken(), "the table and the driver");
    }
    assert_eq!(pages.mapped, memory, "the table and the pages");
    for piece in pieces.iter().filter(|r| !matches!(r.state, State::Held | State::Hole)) {
        assert!(pages.covers(piece.address, piece.size), "{piece:?} has memory everywhere");
    }
    assert_eq!(counted(&shared, &pieces, empty), seen(&shared.stats(&pages)));
}

/// Pieces follow one another; idle ones of one owner and holes are whole; the bins have the idle ones.
fn tiled(shared: &Shared, virtual_memory: bool) {
    for region in 0..shared.table.regions.len() as u16 {
        let records: Vec<&Record> = shared.table.in_order(region).into_iter().map(|index| shared.table.get(index)).collect();
        for pair in records.windows(2).filter(|_| virtual_memory) {
            assert_eq!(pair[0].end(), pair[1].address);
            let both = |state| pair[0].state == state && pair[1].state == state;
            assert!(!both(State::Hole), "two holes at {:#x}", pair[1].address);
            let one = both(State::Idle) && pair[0].owner == pair[1].owner && !pair[1].wall;
            assert!(!one, "two idle pieces of one owner at {:#x}", pair[1].address);
        }
        assert!(records.last().is_none_or(|record| record.state != State::Hole));
        let count = |state| records.iter().filter(|record| record.state == state).count();
        let binned: usize = (0..shared.table.owners()).map(|owner| shared.table.idle_of(region, owner).len()).sum();
        assert_eq!((count(State::Idle), count(State::Hole)), (binned, shared.table.regions[region as usize].holes.len()));
    }
    let pending = shared.pieces().filter(|record| record.state == State::Pending).count();
    assert_eq!(pending, shared.pending.len());
    assert!(shared.pending.iter().all(|entry| shared.table.get(entry.index).state == State::Pending && !entry.aside));
}

/// Counts and bytes of every metric: both pools together, then the small and the large one.
type Numbers = Vec<(&'static str, u64, u64, u64)>;

fn seen(stats: &MemoryStats) -> Numbers {
    let row = |name, pool: crate::PoolStats| (name, pool.all.current, pool.small_pool.current, pool.large_pool.current);
    let mut rows = vec![
        row("allocation", stats.allocation),
        row("allocated_bytes", stats.allocated_bytes),
        row("requested_bytes", stats.requested_bytes),
        row("active", stats.active),
        row("active_bytes", stats.active_bytes),
        row("inactive_split", stats.inactive_split),
        row("inactive_split_bytes", stats.inactive_split_bytes),
        row("reserved_bytes", stats.reserved_bytes),
        ("pending, largest, live", stats.pending as u64, stats.largest_free as u64, stats.live_blocks as u64),
    ];
    rows.extend(Category::ALL.map(|category| (category.name(), stats.category(category).current as u64, 0, 0)));
    rows
}

fn counted(shared: &Shared, pieces: &[Record], empty: usize) -> Numbers {
    let pool = |r: &Record| shared.table.regions[r.region as usize].pool;
    let row = |name, of: &dyn Fn(&Record) -> u64, empty: usize| {
        let sum = |which| pieces.iter().filter(|r| pool(r) == which).map(of).sum::<u64>();
        let (small, large) = (sum(Pool::Small) + empty as u64, sum(Pool::Large));
        (name, small + large, small, large)
    };
    // A freed block is active while it is pending; a piece that was idle and waits for a stream that ended is not.
    let waiting = |r: &Record| {
        shared.pending.iter().any(|entry| entry.active && shared.table.get(entry.index).address == r.address)
            && r.state == State::Pending
    };
    let live = |r: &Record| r.state == State::Live;
    let active = |r: &Record| live(r) || waiting(r);
    let idle = |r: &Record| r.state == State::Idle;
    let asked = |r: &Record| r.bytes.next_multiple_of(512) as u64;
    let bytes = |r: &Record| r.size as u64;
    let (pending, largest) = (
        pieces.iter().filter(|r| r.state == State::Pending).map(bytes).sum(),
        pieces.iter().filter(|r| idle(r)).map(bytes).max().unwrap_or(0),
    );
    let memory = |r: &Record| if matches!(r.state, State::Held | State::Hole) { 0 } else { r.size as u64 };
    let mut rows = vec![
        row("allocation", &|r| u64::from(live(r)), empty),
        row("allocated_bytes", &|r| if live(r) { asked(r) } else { 0 }, 0),
        row("requested_bytes", &|r| if live(r) { r.bytes as u64 } else { 0 }, 0),
        row("active", &|r| u64::from(active(r)), empty),
        row("active_bytes", &|r| if active(r) { bytes(r) } else { 0 }, 0),
        row("inactive_split", &|r| u64::from(idle(r)), 0),
        row("inactive_split_bytes", &|r| if idle(r) { bytes(r) } else { 0 }, 0),
        row("reserved_bytes", &memory, 0),
        ("pending, largest, live", pending, largest, pieces.iter().filter(|r| live(r)).count() as u64 + empty as u64),
    ];
    rows.extend(Category::ALL.map(|category| {
        let of = pieces.iter().filter(|r| live(r) && r.category == category);
        (category.name(), of.map(asked).sum(), 0, 0)
    }));
    rows
}
