//! Giving memory back to the device: whole idle pages, once nothing uses them.

use crate::Result;
use crate::core::Core;
use crate::pages::Pages;
use crate::table::State;

impl Core {
    /// Waits for everything that is not live, merges it under `owner`, and gives up to about `need` bytes of whole pages back.
    pub(crate) fn reclaim(&self, pages: &mut Pages, need: usize, owner: u32) -> Result<()> {
        self.retire(pages, true);
        // A page that the driver would not let leave an old address cannot go back.
        if pages.is_leaving() {
            return self.check();
        }
        pages.asker = owner;
        let (mut shared, mut clear) = self.settle(owner)?;
        let table = &mut shared.table;
        // Largest first, for the fewest calls.
        clear.sort_by_key(|index| std::cmp::Reverse(table.get(*index).size));
        let (mut runs, mut left) = (Vec::new(), need);
        for mut index in clear {
            let record = *table.get(index);
            let Some((at, bytes)) = pages.whole_pages(record.address, record.end(), left, usize::MAX) else {
                table.release(index);
                continue;
            };
            left = left.saturating_sub(bytes);
            if at > record.address {
                let rest = table.split(index, (at - record.address) as usize);
                table.release(index);
                index = rest;
            }
            if table.get(index).size > bytes {
                let rest = table.split(index, bytes);
                table.release(rest);
            }
            table.set(index, State::Held);
            runs.push((index, at, bytes));
        }
        drop(shared);
        let mut failed = None;
        for (index, at, bytes) in runs {
            let before = pages.mapped;
            failed = failed.or(pages.unmap(&*self.source, at, bytes).err());
            let mut shared = self.locked();
            shared.note_pages(pages);
            let gone = before - pages.mapped;
            // Pages go one by one, so what could not go is the end of the run.
            if 0 < gone && gone < bytes {
                let rest = shared.table.split(index, gone);
                shared.table.release(rest);
            }
            if gone > 0 {
                shared.table.make_hole(index);
            } else {
                shared.table.release(index);
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
