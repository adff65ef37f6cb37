//! Gives every block a value of its own and looks for it later, wherever a page that was lost or shared would show.

use super::ReplayError;
use crate::{Block, Result, SourceError, Stream, download, fill};

pub(super) const NO_VALUES: SourceError =
    SourceError::Unsupported("blocks cannot be checked on a simulated device: it has no values");

/// Pages are multiples of this many bytes, so each is looked at.
const EACH: usize = 2 << 20;
/// Bytes looked at in one place.
const WINDOW: usize = 64;

/// A byte that blocks allocated one after the other do not share; never 0x00 or 0xFF, which fresh and poisoned memory hold.
fn value(block: &Block) -> u8 {
    1 + (block.id() % 253) as u8
}

/// Fills a new block.
pub(super) fn mark(block: &Block, stream: &Stream) -> Result<()> {
    fill(&mut block.write(stream)?, value(block), 0, block.bytes())
}

/// Looks at a block before `event` frees it.
pub(super) fn verify(block: &Block, streams: &[Stream], event: usize) -> Result<(), ReplayError> {
    // The plan made a stream for every number, so the block's is among them.
    let Some(stream) = streams.iter().find(|stream| stream.id() == block.home()) else { return Ok(()) };
    let (bytes, wanted) = (block.bytes(), value(block));
    let token = block.read(stream)?;
    for offset in (0..bytes).step_by(EACH).chain([bytes.saturating_sub(WINDOW)]) {
        let mut window = [0; WINDOW];
        let window = &mut window[..WINDOW.min(bytes - offset)];
        download(&token, offset, window)?;
        if let Some(i) = window.iter().position(|byte| *byte != wanted) {
            let (block, offset, found) = (block.id(), offset + i, window[i]);
            return Err(ReplayError::Damaged { event, block, offset, wanted, found });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::HostSource;
    use crate::{Allocator, AllocatorConfig, Category};
    use std::sync::Arc;

    #[test]
    fn a_foreign_byte_is_found_in_each_2_mib_and_at_the_end() -> Result<(), Box<dyn std::error::Error>> {
        let allocator = Allocator::new(Arc::new(HostSource::new()?), AllocatorConfig::default())?;
        let streams = [allocator.compute_stream().clone()];
        let block = allocator.allocate(2 * EACH + 1000, &streams[0], Category::Temporaries)?;
        for damaged in [0, EACH + 5, 2 * EACH + 999] {
            mark(&block, &streams[0])?;
            verify(&block, &streams, 7)?;
            fill(&mut block.write(&streams[0])?, 0xff, damaged, 1)?;
            let found = verify(&block, &streams, 7);
            assert!(matches!(found, Err(ReplayError::Damaged { event: 7, offset, found: 0xff, .. }) if offset == damaged));
        }
        Ok(())
    }
}
