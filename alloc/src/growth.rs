//! Where to grow: at the tail or in a hole, next to idle memory of the same stream, by as little as possible.

use crate::size::round_up;
use crate::table::{NONE, State, Table};

/// Idle neighbours and the new bytes between them.
pub(crate) struct Plan {
    left: u32,
    right: u32,
    /// `NONE` at the tail.
    hole: u32,
    from_end: bool,
    bytes: usize,
    address: u64,
}

/// A plan whose blocks are held while the driver maps `bytes` at `address`.
pub(crate) struct Grown {
    left: u32,
    right: u32,
    gap: u32,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// What growth may use.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// Wanted unit of growth, and the least possible one; bytes.
    pub(crate) page: usize,
    pub(crate) granularity: usize,
    /// End of the reserved addresses.
    pub(crate) end: u64,
    /// Bytes left under the limit.
    pub(crate) budget: usize,
}

impl Room {
    /// `missing` in whole pages, coarse if possible, within `most` bytes.
    fn fit(&self, missing: usize, most: usize) -> Option<usize> {
        [self.page, self.granularity].into_iter().find_map(|unit| round_up(missing, unit).filter(|b| *b <= most.min(self.budget)))
    }
}

impl Plan {
    /// The plan that maps the fewest bytes for a block of `size` bytes of `owner`; the lowest address on ties.
    pub(crate) fn best(table: &Table, size: usize, owner: u32, room: Room) -> Option<Plan> {
        let idle = |index: u32| if table.is_idle(index, owner) { (index, table.get(index).size) } else { (NONE, 0) };
        let (left, before) = idle(table.last());
        let addresses = (room.end - table.top()) as usize;
        let tail = room.fit(size.saturating_sub(before), addresses).map(|bytes| Plan {
            left,
            right: NONE,
            hole: NONE,
            from_end: false,
            bytes,
            address: table.top(),
        });
        let holes = table.holes.iter().flat_map(|hole| {
            let record = table.get(*hole);
            debug_assert_eq!(record.state, State::Hole);
            let ((left, before), (right, after)) = (idle(record.prev), idle(record.next));
            let plan = |left, right, from_end, bytes| Plan { left, right, hole: *hole, from_end, bytes, address: record.address };
            let start = room.fit(size.saturating_sub(before), record.size).map(|bytes| plan(left, NONE, false, bytes));
            let end = room.fit(size.saturating_sub(after), record.size).map(|bytes| plan(NONE, right, true, bytes));
            let whole = (before + record.size + after >= size && record.size <= room.budget)
                .then(|| plan(left, right, false, record.size));
            [start, end, whole].into_iter().flatten()
        });
        holes.chain(tail).min_by_key(|plan| (plan.bytes, plan.address))
    }

    /// Takes the plan's blocks out of everybody's reach.
    pub(crate) fn hold(self, table: &mut Table, owner: u32) -> Grown {
        for index in [self.left, self.right] {
            if index != NONE {
                table.hold(index);
            }
        }
        let gap = match self.hole {
            NONE => table.append(self.bytes, owner),
            hole => table.fill(hole, self.bytes, self.from_end, owner),
        };
        Grown { left: self.left, right: self.right, gap, address: table.get(gap).address, bytes: self.bytes }
    }
}

impl Grown {
    /// Makes one live block of it for `size` bytes; the rest becomes idle.
    pub(crate) fn join(self, table: &mut Table, size: usize) -> u32 {
        if self.right != NONE {
            table.merge(self.gap);
        }
        let mut index = self.gap;
        if self.left != NONE {
            table.merge(self.left);
            index = self.left;
        }
        table.trim(index, size);
        index
    }
    /// Puts everything back. If the driver kept pages in the gap, nobody may ever use it: it stays held.
    pub(crate) fn undo(self, table: &mut Table, pages_left: bool) {
        if !pages_left {
            table.make_hole(self.gap);
        }
        for index in [self.left, self.right] {
            if index != NONE {
                table.release(index);
            }
        }
    }
}
