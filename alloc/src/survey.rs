//! What the block table knows and no counter: who holds what, by line and by stream.

use crate::StreamId;
use crate::core::Shared;
use crate::table::{Record, State};
use std::collections::{BTreeMap, HashMap};

/// How many lines an out-of-memory report names.
const TOP: usize = 5;

impl Shared {
    /// Every piece, in address order within its region.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Record> {
        let regions = 0..self.table.regions.len() as u16;
        regions.flat_map(|region| self.table.in_order(region)).map(|index| self.table.get(index))
    }
    /// Bytes of the blocks that are live, as large as they are.
    pub(crate) fn live_bytes(&self) -> usize {
        self.pieces().filter(|piece| piece.state == State::Live).map(|piece| piece.size).sum()
    }
    /// Live bytes by the line that asked for them, largest first.
    pub(crate) fn by_site(&self) -> Vec<(String, usize)> {
        let mut sums: HashMap<(&str, u32), usize> = HashMap::new();
        for record in self.pieces().filter(|record| record.state == State::Live) {
            *sums.entry((record.site.file(), record.site.line())).or_default() += record.bytes;
        }
        let mut list: Vec<_> = sums.into_iter().map(|((file, line), bytes)| (format!("{file}:{line}"), bytes)).collect();
        list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        list
    }
    pub(crate) fn top_sites(&self) -> Vec<(String, usize)> {
        let mut sites = self.by_site();
        sites.truncate(TOP);
        sites
    }
    /// Pending bytes by the stream that owns them.
    pub(crate) fn pending_by_stream(&self) -> Vec<(StreamId, usize)> {
        let mut sums: BTreeMap<StreamId, usize> = BTreeMap::new();
        for entry in &self.pending {
            let record = self.table.get(entry.index);
            *sums.entry(StreamId(record.owner)).or_default() += record.size;
        }
        sums.into_iter().collect()
    }
}
