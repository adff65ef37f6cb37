//! The table keeps what its header promises, whatever the order of calls.

use super::*;
use proptest::prelude::*;

const UNIT: usize = 2 << 20;

/// What the header promises.
fn check(table: &Table) {
    let records: Vec<Record> = table.in_order(0).into_iter().map(|index| *table.get(index)).collect();
    assert_eq!(records.first().map_or(512, |r| r.address), 512);
    assert!(records.windows(2).all(|w| w[0].end() == w[1].address));
    assert!(records.windows(2).all(|w| {
        let both = |state| w[0].state == state && w[1].state == state;
        !(both(State::Hole) || both(State::Idle) && w[0].owner == w[1].owner && !w[1].wall)
    }));
    assert!(records.last().is_none_or(|r| r.state != State::Hole));
    assert_eq!(records.iter().filter(|r| r.state == State::Hole).count(), table.regions[0].holes.len());
    let idle: usize = (0..table.owners()).map(|owner| table.idle_of(0, owner).len()).sum();
    assert_eq!(records.iter().filter(|r| r.state == State::Idle).count(), idle);
}

#[test]
fn a_piece_that_nobody_has_asks_for_nothing() {
    let mut table = Table::new();
    table.add_region(Some(512), Pool::Large, false);
    table.add_owner(0);
    let index = table.append(UNIT, 0, 0, false);
    table.set_tag(index, Tag { bytes: 7, ..table.nobody });
    table.release(index);
    let again = table.find(512, 0, 0, Search::BestFit).unwrap();
    table.hold(again);
    table.trim(again, 512, true);
    assert_eq!((table.get(again).state, table.get(again).bytes), (State::Live, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_tile_the_arena_and_neighbours_are_merged(steps in prop::collection::vec((0..6u8, any::<u16>(), 0..2u32), 1..200)) {
        let mut table = Table::new();
        table.add_region(Some(512), Pool::Large, false);
        table.add_owner(1);
        let mut live = Vec::new();
        for (what, n, owner) in steps {
            let size = (usize::from(n) % 64 + 1) * 512;
            match what {
                0 => live.push(table.append(UNIT, 0, owner, n % 4 == 0)),
                1 if !live.is_empty() => table.release(live.swap_remove(usize::from(n) % live.len())),
                2 if !live.is_empty() => table.make_hole(live.swap_remove(usize::from(n) % live.len())),
                3 if !table.regions[0].holes.is_empty() => {
                    let hole = table.regions[0].holes[usize::from(n) % table.regions[0].holes.len()];
                    live.push(table.fill(hole, size.min(table.get(hole).size), n % 2 == 0, owner, n % 8 == 0));
                }
                _ => {
                    if let Some(index) = table.find(size, 0, owner, Search::BestFit) {
                        prop_assert!(table.get(index).size >= size);
                        table.hold(index);
                        table.trim(index, size, table.get(index).size > size);
                        live.push(index);
                    }
                }
            }
            check(&table);
        }
        live.into_iter().for_each(|index| table.make_hole(index));
        (0..2).for_each(|owner| table.idle_of(0, owner).into_iter().for_each(|index| {
            table.hold(index);
            table.make_hole(index);
        }));
        prop_assert_eq!(table.top(0), 512);
    }
}
