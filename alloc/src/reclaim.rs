//! Giving memory back to the device: whole idle pages, once nothing uses them.

use crate::Result;
use crate::core::Core;
use crate::pages::Pages;
use crate::table::State;

impl Core {
    /// Waits for everything that is not live, merges it under `owner`, and gives up to about `need` bytes of whole pages back.
    pub(crate) fn reclaim(&self, pages: &mut Pages, need: usize, owner: u32) -> Result<()> {
        self.retire(pages, true);
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
            let mut shared = self.shared.lock();
            shared.note_pages(pages);
            match before - pages.mapped {
                0 => shared.table.release(index),
                gone if gone == bytes => shared.table.make_hole(index),
                // Some pages went and some did not: nobody may use the run again.
                _ => {}
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
