//! Stitching: free pages from anywhere are mapped side by side where a region grows, and nothing is copied.
//!
//! R1: whoever used a page before is waited for, on the device, by the stream that gets it. R2: the old address is unmapped only
//! when the device has passed that point. R3: pages of pinned regions stay. R4: between, no block has the old address.

use crate::core::{Core, Shared};
use crate::growth::{Grown, Place, Plan};
use crate::ladder::Ask;
use crate::mark::{Mark, Pending, Wait};
use crate::pages::{Mapping, Pages};
use crate::stats::Pool;
use crate::steal::Held;
use crate::stream::{OPEN, StreamInner};
use crate::table::State;
use crate::{Growth, Result, SourceError};
use smallvec::SmallVec;
use std::sync::Arc;

/// Stitching costs calls, so each one lets reserved bytes grow by this much more of the peak, until the peak rises: sizes that never
/// settle find room instead of moving pages for ever, and those that repeat come to rest.
const EASE: f64 = 0.002;

/// Whose free pages may move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Donors {
    Idle,
    /// Those that the device may still use as well.
    Pending,
    /// None: growth alone.
    Nobody,
}

/// A run of pages that moves, as a held piece of its own.
struct Donor {
    index: u32,
    address: u64,
    bytes: usize,
    /// What it was waiting for, if it was pending.
    waits: Option<Waiting>,
}

/// What a pending piece waits for, and whether it counts as active.
type Waiting = (SmallVec<[Wait; 2]>, bool);

/// A change of the pages, decided and held: to be carried out, or undone.
struct Stitch {
    grown: Grown,
    donors: Vec<Donor>,
    /// Bytes to take from the device.
    fresh: usize,
    unit: usize,
}

/// What a change may use.
#[derive(Clone, Copy)]
pub(crate) struct Means {
    /// Whose free pages may move.
    pub(crate) donors: Donors,
    /// Whether new pages may be taken although the policy would rather see free ones move, of which there are too few.
    pub(crate) freely: bool,
    /// Bytes that may be taken from the device, where that is less than the limit leaves.
    pub(crate) room: usize,
}

impl Means {
    pub(crate) fn new(donors: Donors, freely: bool) -> Means {
        Means { donors, freely, room: usize::MAX }
    }
}

impl Core {
    /// Serves a request by adding pages where its region grows: free ones as far as new ones would take too much, new ones within
    /// the limit. `None` if there are not enough of both.
    pub(crate) fn extend(&self, pages: &mut Pages, ask: &Ask, stream: &Arc<StreamInner>, means: Means) -> Result<Option<u32>> {
        pages.asker = stream.id;
        let mut means = means;
        loop {
            // Declared before the lock, so that no stream ends under it.
            let mut users = Vec::new();
            let mut shared = self.locked();
            if let Some(index) = self.take(&mut shared, ask, stream.id) {
                return Ok(Some(index));
            }
            means.room = means.room.min(shared.budget(pages));
            if !self.info.virtual_memory {
                drop(shared);
                return self.allocate_segment(pages, ask, stream.id, means.room);
            }
            let Some(stitch) = self.plan(&mut shared, pages, ask, stream.id, means, &mut users) else {
                return Ok(None);
            };
            drop(shared);
            let fresh = stitch.fresh;
            match self.carry_out(pages, stitch, ask, stream, &users) {
                Ok(index) => return Ok(Some(index)),
                Err(SourceError::OutOfMemory) if fresh > 0 => {
                    let free = self.source.memory_info().map_or(0, |memory| memory.free);
                    // The device has less than was believed; and less than was tried, so that this comes to an end.
                    means.room = (free / pages.granularity() * pages.granularity()).min(fresh - pages.granularity());
                }
                Err(SourceError::OutOfMemory) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Decides where the region grows and which pages move there, and holds it all. `users` are those whose work the pages may
    /// still be in.
    fn plan(
        &self,
        shared: &mut Shared,
        pages: &Pages,
        ask: &Ask,
        owner: u32,
        means: Means,
        users: &mut Vec<Held>,
    ) -> Option<Stitch> {
        let growth = self.policy.growth(ask.size);
        let granularity = pages.granularity();
        let (allowed, ahead) = match growth {
            Growth::Pages { stitch_above } => {
                let high_water = shared.high_water(ask.bytes) as f64;
                let allowed = high_water * (stitch_above + f64::from(shared.stitches_at_peak) * EASE);
                (allowed as usize, if stitch_above.is_finite() { stitch_above - 1.0 } else { 0.0 })
            }
            Growth::Segments(_) => (usize::MAX, 0.0),
        };
        // Coarse pages only where they take no more than may be taken.
        let coarse = pages.coarse();
        let generous = pages.mapped.saturating_add(ask.size).saturating_add(coarse) <= allowed
            && ask.size.saturating_add(coarse) <= means.room;
        let page = if generous { coarse } else { granularity };
        let place = Place { region: ask.region, owner, page, granularity, end: pages.end(ask.region) };
        shared.table.regions[ask.region as usize].paged |= matches!(growth, Growth::Pages { .. });
        let may_stitch = matches!(growth, Growth::Pages { .. }) && means.donors != Donors::Nobody;
        // The second way moves more pages, so it comes only when the policy has no say any more.
        let ways = Plan::of(growth, &shared.table, ask.size, place).into_iter().take(if means.freely { 2 } else { 1 });
        let (mut plan, runs, got) = ways.flatten().find_map(|plan| {
            let excess = pages.mapped.saturating_add(plan.bytes).saturating_sub(allowed).min(plan.bytes);
            let missing = plan.bytes - plan.bytes.min(means.room) / granularity * granularity;
            let (mut runs, mut got) = (Vec::new(), 0);
            let wanted = excess.next_multiple_of(granularity).max(missing);
            if may_stitch && wanted > 0 {
                let most = if plan.is_tail() { plan.room } else { plan.bytes };
                (runs, got) = shared.find_donors(pages, &plan, (wanted, most), owner, means.donors, users);
            }
            (got >= missing && (got >= excess || means.freely)).then_some((plan, runs, got))
        })?;
        plan.bytes = plan.bytes.max(got);
        let mut fresh = plan.bytes - got;
        // While the device is asked at all, a little more than is missing, as far as may be taken: it saves later calls.
        if fresh > 0 && plan.is_tail() && shared.pool(ask) == Pool::Large {
            let after = pages.mapped + fresh;
            let spare = ((after as f64 * ahead) as usize).min(allowed.saturating_sub(after));
            let spare = spare.min(means.room - fresh).min(plan.room - plan.bytes) / page * page;
            plan.bytes += spare;
            fresh += spare;
        }
        let unit = if matches!(growth, Growth::Segments(_)) { plan.bytes } else { page };
        let donors = runs.into_iter().map(|(index, address, bytes)| shared.cut_out(index, address, bytes)).collect();
        Some(Stitch { grown: plan.hold(&mut shared.table, place), donors, fresh, unit })
    }

    /// Moves the pages. On an error everything is as before.
    fn carry_out(
        &self,
        pages: &mut Pages,
        stitch: Stitch,
        ask: &Ask,
        stream: &Arc<StreamInner>,
        users: &[Held],
    ) -> Result<u32, SourceError> {
        let Stitch { grown, donors, fresh, unit } = stitch;
        let moved: Vec<(u64, usize)> = donors.iter().flat_map(|donor| pages.list(donor.address, donor.bytes)).collect();
        let result = self.order_after(stream, users).and_then(|marks| {
            let pool = self.locked().pool(ask);
            pages.map(&*self.source, Mapping { at: grown.address, moved: &moved, fresh, unit, pool })?;
            Ok(marks)
        });
        let mut shared = self.locked();
        if result.is_ok() {
            // Before the pages are noted: a block is done with while its address is still memory.
            for donor in &donors {
                shared.table.settled(donor.index, donor.waits.as_ref().is_some_and(|(_, active)| *active));
            }
        }
        shared.note_pages(pages);
        match result {
            Ok(marks) => {
                if !donors.is_empty() {
                    shared.stitches_at_peak += 1;
                    shared.table.counters.stitches += 1;
                    shared.table.counters.stitched_bytes += moved.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>();
                }
                let index = grown.join(&mut shared.table);
                let stitched = !donors.is_empty();
                for donor in donors {
                    pages.leave(donor.index, donor.address, donor.bytes, marks.clone());
                }
                // Last, since it asks the policy, which may panic.
                self.cut(&mut shared, index, ask.size);
                drop(shared);
                if stitched {
                    self.retire(pages, false);
                }
                Ok(index)
            }
            Err(error) => {
                let left = pages.leave_residue(grown.gap());
                grown.undo(&mut shared.table, left);
                for donor in donors {
                    shared.put_back(donor);
                }
                Err(error)
            }
        }
    }

    /// Makes `stream` wait on the device for all `users`; returns marks after which none of them uses anything any more.
    fn order_after(&self, stream: &Arc<StreamInner>, users: &[Held]) -> Result<Vec<Arc<Mark>>, SourceError> {
        users
            .iter()
            .map(|user| {
                let (mark, own) = match user {
                    Held::Mark(mark) => (mark.clone(), false),
                    Held::Stream(other) => (other.mark_covering(OPEN)?, other.serial == stream.serial),
                };
                if !own {
                    self.source.stream_wait(stream.raw, mark.raw)?;
                }
                Ok(mark)
            })
            .collect()
    }

    /// Unmaps old addresses that the device has finished with; with `wait`, all of them.
    pub(crate) fn retire(&self, pages: &mut Pages, wait: bool) {
        let (gone, failed) = pages.retire(&*self.source, wait);
        self.defer(failed);
        let mut shared = self.locked();
        gone.into_iter().for_each(|index| shared.table.make_hole(index));
        shared.note_pages(pages);
    }

    /// Growth on a source without virtual memory: an allocation of its own.
    fn allocate_segment(&self, pages: &mut Pages, ask: &Ask, owner: u32, budget: usize) -> Result<Option<u32>> {
        let pool = self.locked().pool(ask);
        let segment = match self.policy.growth(ask.size) {
            Growth::Segments(bytes) => bytes,
            Growth::Pages { .. } if pool == Pool::Small => SMALL_SEGMENT,
            Growth::Pages { .. } => LARGE_SEGMENT,
        };
        // A smaller one where the limit or the device has no more.
        for bytes in [segment.max(ask.size), ask.size] {
            let Some(bytes) = bytes.checked_next_multiple_of(pages.granularity()).filter(|bytes| *bytes <= budget) else {
                continue;
            };
            match pages.allocate(&*self.source, bytes, pool) {
                Ok(address) => {
                    let mut shared = self.locked();
                    shared.note_pages(pages);
                    let index = shared.table.append_at(address, bytes, ask.region, owner, true);
                    self.cut(&mut shared, index, ask.size);
                    return Ok(Some(index));
                }
                Err(SourceError::OutOfMemory) => self.locked().note_pages(pages),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

/// Sizes of segments where there are no pages, as PyTorch has them.
const SMALL_SEGMENT: usize = 2 << 20;
const LARGE_SEGMENT: usize = 20 << 20;

impl Shared {
    fn pool(&self, ask: &Ask) -> Pool {
        self.table.regions[ask.region as usize].pool
    }
    /// Bytes that may still be taken under the limit.
    fn budget(&self, pages: &Pages) -> usize {
        self.table.counters.limit.map_or(usize::MAX, |limit| limit.saturating_sub(pages.mapped))
    }

    /// Runs of whole free pages of about `wanted` bytes and no more than `most`: from the smallest pieces, whose use for anything
    /// else is the least.
    fn find_donors(
        &self,
        pages: &Pages,
        plan: &Plan,
        (wanted, most): (usize, usize),
        owner: u32,
        donors: Donors,
        users: &mut Vec<Held>,
    ) -> (Vec<(u32, u64, usize)>, usize) {
        let mut candidates: Vec<u32> = (0..self.table.owners()).flat_map(|owner| self.table.all_idle_of(owner)).collect();
        candidates.retain(|index| *index != plan.left && *index != plan.right);
        if donors == Donors::Pending {
            candidates.extend(self.pending.iter().filter(|entry| !entry.aside && !entry.is_lost()).map(|entry| entry.index));
        }
        candidates.retain(|index| !self.table.is_pinned(*index));
        let key = |index: &u32| {
            let record = self.table.get(*index);
            // Pages of the stream itself first: they need no wait.
            (record.owner != owner, record.size, record.address)
        };
        candidates.sort_by_key(key);
        let (mut runs, mut got) = (Vec::new(), 0);
        for index in candidates {
            if got >= wanted {
                break;
            }
            let record = self.table.get(index);
            if let Some((at, bytes)) = pages.whole_pages(record.address, record.end(), wanted - got, most - got)
                && self.users_of(index, users)
            {
                runs.push((index, at, bytes));
                got += bytes;
            }
        }
        (runs, got)
    }

    /// Adds those who may still use a piece to `users`; whether all of them can be named. Nothing is taken off the list again: a
    /// stream must not end under the short lock.
    fn users_of(&self, index: u32, users: &mut Vec<Held>) -> bool {
        let record = self.table.get(index);
        let mut add = |user: Option<Held>| {
            let Some(user) = user else { return false };
            if !users.iter().any(|known| known.is(&user)) {
                users.push(user);
            }
            true
        };
        if !add(self.stream(record.owner).map(Held::Stream)) {
            return false;
        }
        if record.state == State::Idle {
            return true;
        }
        let Some(entry) = self.pending.iter().find(|entry| entry.index == index) else { return false };
        entry.waits.iter().all(|wait| match wait {
            Wait::Mark(mark) => add(Some(Held::Mark(mark.clone()))),
            Wait::Stream(_, stream) => add(stream.upgrade().map(Held::Stream)),
            Wait::Never => false,
        })
    }

    /// Cuts a run of pages out of an idle or pending piece, as a held piece of its own.
    fn cut_out(&mut self, mut index: u32, address: u64, bytes: usize) -> Donor {
        let waits = self
            .pending
            .iter()
            .position(|entry| entry.index == index)
            .map(|at| self.pending.remove(at))
            .map(|entry| (entry.waits, entry.active));
        if waits.is_none() {
            self.table.hold(index);
        }
        let before = (address - self.table.get(index).address) as usize;
        if before > 0 {
            let rest = self.table.split(index, before);
            self.count_split(index, &waits);
            self.keep(index, &waits);
            index = rest;
        }
        if self.table.get(index).size > bytes {
            let rest = self.table.split(index, bytes);
            self.count_split(index, &waits);
            self.keep(rest, &waits);
        }
        self.table.set(index, State::Held);
        Donor { index, address, bytes, waits }
    }
    fn count_split(&mut self, index: u32, waits: &Option<Waiting>) {
        if let Some((_, true)) = waits {
            self.table.pending_split(index);
        }
    }
    /// Makes a piece idle again, or pending if it waits for something.
    fn keep(&mut self, index: u32, waits: &Option<Waiting>) {
        match waits {
            None => self.table.release(index),
            Some((waits, active)) => {
                self.table.set(index, State::Pending);
                self.pending.push(Pending { active: *active, ..Pending::new(index, waits.iter().cloned()) });
            }
        }
    }
    fn put_back(&mut self, donor: Donor) {
        self.keep(donor.index, &donor.waits);
    }
}
