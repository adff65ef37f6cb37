//! Breaches: what a real device would answer with wrong values, a fault or nothing at all, said in one sentence each.

use std::fmt;

/// Which rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreachKind {
    /// Work uses an address where nothing is mapped.
    NotMapped,
    /// Work uses a mapped range that was given no access.
    NoAccess,
    /// Between enqueueing and running, another page came to lie at an address that work uses.
    Moved,
    /// A range was unmapped while enqueued work uses it.
    UnmappedInUse,
    /// An allocation was freed while enqueued work uses it.
    FreedInUse,
    /// Work is not ordered after an earlier, unfinished use of the same bytes.
    Unordered,
    /// As `Unordered`, and the two uses see the bytes at different addresses.
    UnorderedAlias,
    /// Bytes of a block that is still used belong to a younger block as well.
    HandedOutTwice,
    /// One block sees one page at two of its addresses.
    TwoAddresses,
    /// A read did not find what the last write enqueued before it was to leave there.
    WrongValue,
    /// A pinned page was mapped elsewhere or unmapped.
    PinnedMoved,
    /// A call that a driver refuses.
    InvalidCall,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Which rule.
    pub kind: BreachKind,
    /// What happened: blocks, streams and addresses, in one sentence.
    pub message: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The breaches so far, each once. The first ones tell the cause, so only these are kept.
#[derive(Default)]
pub(super) struct Breaches(Vec<Breach>);

impl Breaches {
    const KEPT: usize = 64;

    pub(super) fn add(&mut self, kind: BreachKind, message: impl Into<String>) {
        let breach = Breach { kind, message: message.into() };
        if self.0.len() < Self::KEPT && !self.0.contains(&breach) {
            self.0.push(breach);
        }
    }
    pub(super) fn all(&self) -> &[Breach] {
        &self.0
    }
    pub(super) fn take(&mut self) -> Vec<Breach> {
        std::mem::take(&mut self.0)
    }
    /// All of them, a line each.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|breach| format!("\n  {:?}: {breach}", breach.kind)).collect()
    }
}
