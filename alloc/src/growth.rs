//! Where a region grows: at its tail or in a hole, next to idle memory of the same stream, by as little as possible.

use crate::Growth;
use crate::size::round_up;
use crate::table::{NONE, Table};

/// Idle neighbours and the new bytes between them.
pub(crate) struct Plan {
    pub(crate) left: u32,
    pub(crate) right: u32,
    /// `NONE` at the tail.
    hole: u32,
    from_end: bool,
    pub(crate) bytes: usize,
    address: u64,
    /// The most bytes the place has.
    pub(crate) room: usize,
    /// The new bytes are a segment.
    wall: bool,
}

/// A plan whose blocks are held while the driver maps `bytes` at `address`.
pub(crate) struct Grown {
    left: u32,
    right: u32,
    gap: u32,
    pub(crate) address: u64,
}

/// The place and the unit of growth, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) region: u16,
    /// Id of the stream.
    pub(crate) owner: u32,
    /// Wanted unit of growth, and the least possible one.
    pub(crate) page: usize,
    pub(crate) granularity: usize,
    /// End of the reserved addresses.
    pub(crate) end: u64,
}

impl Place {
    /// `missing` bytes in whole pages, coarse if possible, within `most` bytes.
    fn fit(&self, missing: usize, most: usize) -> Option<usize> {
        [self.page, self.granularity].into_iter().find_map(|unit| round_up(missing, unit).filter(|bytes| *bytes <= most))
    }
}

impl Plan {
    /// How `growth` would serve a block of `size` bytes: the best way, then another one.
    pub(crate) fn of(growth: Growth, table: &Table, size: usize, place: Place) -> [Option<Plan>; 2] {
        match growth {
            Growth::Pages { .. } => Plan::pages(table, size, place),
            Growth::Segments(segment) => {
                let bytes = round_up(size.max(segment), place.granularity);
                [bytes.and_then(|bytes| Plan::segment(table, bytes, place)), None]
            }
        }
    }

    /// The plan that adds the fewest bytes, the lowest address on ties. Then the one at the tail, where pages of idle memory may
    /// move that the first one counts on where it lies.
    fn pages(table: &Table, size: usize, place: Place) -> [Option<Plan>; 2] {
        let idle = |index: u32| if table.is_idle(index, place.owner) { (index, table.get(index).size) } else { (NONE, 0) };
        let (left, before) = idle(table.last(place.region));
        let (address, room) = (table.top(place.region), (place.end - table.top(place.region)) as usize);
        let tail = place.fit(size.saturating_sub(before), room).filter(|bytes| *bytes > 0);
        let tail =
            || tail.map(|bytes| Plan { left, right: NONE, hole: NONE, from_end: false, bytes, address, room, wall: false });
        let holes = table.regions[place.region as usize].holes.iter().flat_map(|hole| {
            let record = table.get(*hole);
            let ((left, before), (mut right, mut after)) = (idle(record.prev), idle(record.next));
            if right != NONE && table.get(right).wall {
                (right, after) = (NONE, 0);
            }
            let (address, room, wall) = (record.address, record.size, false);
            let plan = |left, right, from_end, bytes| Plan { left, right, hole: *hole, from_end, bytes, address, room, wall };
            let start = place.fit(size.saturating_sub(before), room).map(|bytes| plan(left, NONE, false, bytes));
            let end = place.fit(size.saturating_sub(after), room).map(|bytes| plan(NONE, right, true, bytes));
            let whole = (before + record.size + after >= size).then(|| plan(left, right, false, record.size));
            // Where blocks come from the end of a zone alone, an idle piece beside a hole may be large enough as it is.
            [start, end, whole].into_iter().flatten().filter(|plan| plan.bytes > 0)
        });
        let best = holes.chain(tail()).min_by_key(|plan| (plan.bytes, plan.address));
        let other = if best.as_ref().is_some_and(Plan::is_tail) { None } else { tail() };
        [best, other]
    }

    /// A segment of `bytes` in the first hole that has room, else at the tail.
    fn segment(table: &Table, bytes: usize, place: Place) -> Option<Plan> {
        let holes = table.regions[place.region as usize].holes.iter();
        let fits = holes.filter(|hole| table.get(**hole).size >= bytes).min_by_key(|hole| table.get(**hole).address);
        let top = table.top(place.region);
        let (hole, address) = match fits {
            Some(hole) => (*hole, table.get(*hole).address),
            None if (place.end - top) as usize >= bytes => (NONE, top),
            None => return None,
        };
        Some(Plan { left: NONE, right: NONE, hole, from_end: false, bytes, address, room: bytes, wall: true })
    }

    /// Whether the place may take more than `bytes`.
    pub(crate) fn is_tail(&self) -> bool {
        self.hole == NONE && !self.wall
    }

    /// Takes the plan's blocks out of everybody's reach.
    pub(crate) fn hold(self, table: &mut Table, place: Place) -> Grown {
        for index in [self.left, self.right] {
            if index != NONE {
                table.hold(index);
            }
        }
        let gap = match self.hole {
            NONE => table.append(self.bytes, place.region, place.owner, self.wall),
            hole => table.fill(hole, self.bytes, self.from_end, place.owner, self.wall),
        };
        Grown { left: self.left, right: self.right, gap, address: table.get(gap).address }
    }
}

impl Grown {
    /// Makes one held block of it.
    pub(crate) fn join(self, table: &mut Table) -> u32 {
        if self.right != NONE {
            table.merge(self.gap);
        }
        if self.left == NONE {
            return self.gap;
        }
        table.merge(self.left);
        self.left
    }
    /// The new bytes.
    pub(crate) fn gap(&self) -> u32 {
        self.gap
    }
    /// Puts everything back. While something is left in the gap that the driver would not unmap, it stays held.
    pub(crate) fn undo(self, table: &mut Table, left: bool) {
        if !left {
            table.make_hole(self.gap);
        }
        for index in [self.left, self.right] {
            if index != NONE {
                table.release(index);
            }
        }
    }
}
