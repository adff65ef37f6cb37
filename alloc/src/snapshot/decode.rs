//! From the nodes of a pickle to a snapshot. Unknown keys are passed over, and missing ones filled in where that is possible.
//!
//! A hostile pickle may refer to one long list a million times. So what is shared there is shared here (strings, frames, stacks),
//! and every item looked at or built is paid for from a budget that the size of the file sets.

use super::arena::{Arena, Id, Node};
use super::machine::run;
use super::*;
use std::collections::HashMap;

/// Dictionaries in a setting that hold each other, at most.
const DEEPEST: usize = 8;

struct Decoder<'a> {
    arena: &'a Arena<'a>,
    budget: usize,
    limit: usize,
    strings: HashMap<Id, Arc<str>>,
    frames: HashMap<Id, Frame>,
    stacks: HashMap<Id, Arc<[Frame]>>,
    no_frames: Arc<[Frame]>,
}

/// What the `history` of a block says of an owner.
#[derive(Default)]
struct Owner {
    real_size: Option<u64>,
    frames: Option<Arc<[Frame]>>,
}

/// The record that is being read, for errors.
#[derive(Clone, Copy)]
struct Place {
    record: &'static str,
    index: usize,
}

impl Place {
    fn error(self, key: &'static str, what: &'static str) -> FormatError {
        FormatError::Field { record: self.record, index: self.index, key, what }
    }
}

const TOP: Place = Place { record: "snapshot", index: 0 };
const MISSING: &str = "is missing";

impl Snapshot {
    /// Reads a pickle of protocol 2 to 5: PyTorch's dictionary, or a bare list of segments.
    ///
    /// Optional keys may be missing, and blocks may have the `history` of older versions of PyTorch. Entries whose action is none
    /// of [`Action`] are left out: they neither take memory nor give it.
    ///
    /// Fails with the position of what is malformed, or with the opcode that asks for code. A real file takes a few times its size
    /// in memory, and no file more than about 64 times.
    pub fn read_pickle(bytes: &[u8]) -> Result<Snapshot, FormatError> {
        let (arena, root) = run(bytes)?;
        // Eight bytes of memory a unit; a real file needs less than one unit a byte.
        let limit = bytes.len().saturating_mul(4).saturating_add(1 << 12);
        let mut decoder = Decoder {
            arena: &arena,
            budget: limit,
            limit,
            strings: HashMap::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
            no_frames: Arc::new([]),
        };
        decoder.snapshot(root)
    }
}

impl<'a> Decoder<'a> {
    fn spend(&mut self, units: usize) -> Result<(), FormatError> {
        self.budget = self.budget.checked_sub(units).ok_or(FormatError::TooLarge { limit: self.limit * 8 })?;
        Ok(())
    }

    /// The pairs of a dictionary whose keys are strings.
    fn pairs(
        &mut self,
        id: Id,
        at: Place,
        key: &'static str,
    ) -> Result<impl Iterator<Item = (&'a [u8], Id)> + use<'a>, FormatError> {
        let arena = self.arena;
        let flat = arena.dict(id).ok_or_else(|| at.error(key, "is no dictionary"))?;
        self.spend(flat.len())?;
        Ok(flat.chunks_exact(2).filter_map(|pair| Some((arena.text(pair[0])?, pair[1]))))
    }

    /// Reads each item of a list.
    fn list<T>(
        &mut self,
        id: Id,
        at: Place,
        key: &'static str,
        mut each: impl FnMut(&mut Self, Id, usize) -> Result<Option<T>, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let items = self.arena.list(id).ok_or_else(|| at.error(key, "is no list"))?;
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            self.spend(1 + size_of::<T>() / 8)?;
            all.extend(each(self, *item, index)?);
        }
        Ok(all)
    }

    fn int(&self, id: Id, at: Place, key: &'static str) -> Result<i64, FormatError> {
        match self.arena.node(id) {
            Node::Int(value) => Ok(value),
            Node::Bool(value) => Ok(i64::from(value)),
            Node::Unsigned(_) | Node::Huge => Err(at.error(key, "is an integer of more than 64 bits")),
            _ => Err(at.error(key, "is no integer")),
        }
    }
    fn size(&self, id: Id, at: Place, key: &'static str) -> Result<u64, FormatError> {
        match self.arena.node(id) {
            Node::Unsigned(value) => Ok(value),
            _ => u64::try_from(self.int(id, at, key)?).map_err(|_| at.error(key, "is negative")),
        }
    }
    fn name(&self, id: Id, at: Place, key: &'static str) -> Result<&'a [u8], FormatError> {
        self.arena.text(id).ok_or_else(|| at.error(key, "is no string"))
    }
    fn string(&mut self, id: Id, at: Place, key: &'static str) -> Result<Arc<str>, FormatError> {
        let text = self.name(id, at, key)?;
        // Older Python's strings are bytes of any kind.
        Ok(self.strings.entry(id).or_insert_with(|| String::from_utf8_lossy(text).into()).clone())
    }

    fn snapshot(&mut self, root: Id) -> Result<Snapshot, FormatError> {
        let mut all = Snapshot::default();
        if self.arena.list(root).is_some() {
            all.segments = self.list(root, TOP, "segments", |d, id, i| d.segment(id, i).map(Some))?;
            return Ok(all);
        }
        if self.arena.dict(root).is_none() {
            return Err(FormatError::NoSnapshot);
        }
        let mut any = false;
        for (key, value) in self.pairs(root, TOP, "segments")? {
            match key {
                b"segments" => {
                    any = true;
                    all.segments = self.list(value, TOP, "segments", |d, id, i| d.segment(id, i).map(Some))?;
                }
                b"device_traces" => {
                    all.device_traces = self.list(value, TOP, "device_traces", |d, id, device| {
                        let at = Place { record: "trace of device", index: device };
                        d.list(id, at, "device_traces", Decoder::entry).map(Some)
                    })?;
                }
                b"allocator_settings" => all.allocator_settings = self.settings(value, TOP, "allocator_settings")?,
                b"external_annotations" => {
                    all.external_annotations = self.list(value, TOP, "external_annotations", |d, id, index| {
                        d.settings(id, Place { record: "annotation", index }, "external_annotations").map(Some)
                    })?;
                }
                _ => {}
            }
        }
        if any { Ok(all) } else { Err(TOP.error("segments", MISSING)) }
    }

    fn segment(&mut self, id: Id, index: usize) -> Result<Segment, FormatError> {
        let at = Place { record: "segment", index };
        let (mut device, mut stream, mut pool, mut expandable) = (0, 0, (0, 0), false);
        let (mut address, mut total, mut blocks, mut kind) = (None, None, None, None);
        let (mut allocated, mut active, mut requested) = (None, None, None);
        let mut frames = self.no_frames.clone();
        for (key, value) in self.pairs(id, at, "segments")? {
            match key {
                b"device" => device = self.size(value, at, "device")? as usize,
                b"address" => address = Some(self.size(value, at, "address")?),
                b"total_size" => total = Some(self.size(value, at, "total_size")?),
                b"allocated_size" => allocated = Some(self.size(value, at, "allocated_size")?),
                b"active_size" => active = Some(self.size(value, at, "active_size")?),
                b"requested_size" => requested = Some(self.size(value, at, "requested_size")?),
                b"stream" => stream = self.int(value, at, "stream")?,
                b"segment_type" => {
                    kind = Some(match self.name(value, at, "segment_type")? {
                        b"small" => SegmentType::Small,
                        b"large" => SegmentType::Large,
                        _ => return Err(at.error("segment_type", "is neither `small` nor `large`")),
                    })
                }
                b"segment_pool_id" => {
                    let Some(&[a, b]) = self.arena.list(value) else { return Err(at.error("segment_pool_id", "is no pair")) };
                    pool = (self.size(a, at, "segment_pool_id")?, self.size(b, at, "segment_pool_id")?);
                }
                b"is_expandable" => expandable = self.int(value, at, "is_expandable")? != 0,
                b"frames" => frames = self.stack(value, at)?,
                b"blocks" => blocks = Some(value),
                _ => {}
            }
        }
        let address = address.ok_or_else(|| at.error("address", MISSING))?;
        // Older blocks have no address: they follow each other.
        let mut next = address;
        let blocks = match blocks {
            Some(id) => self.list(id, at, "blocks", |d, id, i| {
                let block = d.block(id, i, next)?;
                next = block.address.saturating_add(block.size);
                Ok(Some(block))
            })?,
            None => Vec::new(),
        };
        let sum = |of: fn(&Block) -> u64, states: &[BlockState]| {
            blocks.iter().filter(|b| states.contains(&b.state)).map(of).fold(0, u64::saturating_add)
        };
        let owned = [BlockState::ActiveAllocated];
        let used = [BlockState::ActiveAllocated, BlockState::ActivePendingFree];
        let total_size = total.unwrap_or(next.saturating_sub(address));
        Ok(Segment {
            device,
            address,
            total_size,
            allocated_size: allocated.unwrap_or_else(|| sum(|b| b.size, &owned)),
            active_size: active.unwrap_or_else(|| sum(|b| b.size, &used)),
            requested_size: requested.unwrap_or_else(|| sum(|b| b.requested_size, &used)),
            stream,
            // PyTorch's segments for small blocks are of 2 MiB.
            segment_type: kind.unwrap_or(if total_size <= 2 << 20 { SegmentType::Small } else { SegmentType::Large }),
            segment_pool_id: pool,
            is_expandable: expandable,
            frames,
            blocks,
        })
    }

    fn block(&mut self, id: Id, index: usize, next: u64) -> Result<Block, FormatError> {
        let at = Place { record: "block", index };
        let (mut address, mut size, mut requested, mut state, mut frames) = (next, None, None, None, None);
        let mut old = Owner::default();
        for (key, value) in self.pairs(id, at, "blocks")? {
            match key {
                b"address" => address = self.size(value, at, "address")?,
                b"size" => size = Some(self.size(value, at, "size")?),
                b"requested_size" => requested = Some(self.size(value, at, "requested_size")?),
                b"state" => {
                    state = Some(match self.name(value, at, "state")? {
                        b"active_allocated" => BlockState::ActiveAllocated,
                        b"active_pending_free" | b"active_awaiting_free" => BlockState::ActivePendingFree,
                        b"inactive" => BlockState::Inactive,
                        _ => return Err(at.error("state", "is unknown")),
                    })
                }
                b"frames" => frames = Some(self.stack(value, at)?),
                b"history" => old = self.history(value, at)?,
                _ => {}
            }
        }
        let size = size.ok_or_else(|| at.error("size", MISSING))?;
        Ok(Block {
            address,
            size,
            requested_size: requested.or(old.real_size).unwrap_or(size),
            state: state.ok_or_else(|| at.error("state", MISSING))?,
            frames: frames.or(old.frames).unwrap_or_else(|| self.no_frames.clone()),
        })
    }

    /// What older versions say of a block: its owners, the newest first. Only that one counts.
    fn history(&mut self, id: Id, at: Place) -> Result<Owner, FormatError> {
        let mut owner = Owner::default();
        let owners = self.arena.list(id).ok_or_else(|| at.error("history", "is no list"))?;
        if let Some(newest) = owners.first() {
            for (key, value) in self.pairs(*newest, at, "history")? {
                match key {
                    b"real_size" => owner.real_size = Some(self.size(value, at, "real_size")?),
                    b"frames" => owner.frames = Some(self.stack(value, at)?),
                    _ => {}
                }
            }
        }
        Ok(owner)
    }

    fn stack(&mut self, id: Id, at: Place) -> Result<Arc<[Frame]>, FormatError> {
        if matches!(self.arena.node(id), Node::None) || self.arena.list(id).is_some_and(<[Id]>::is_empty) {
            return Ok(self.no_frames.clone());
        }
        if let Some(stack) = self.stacks.get(&id) {
            return Ok(stack.clone());
        }
        let stack: Arc<[Frame]> = self.list(id, at, "frames", |d, id, _| d.frame(id, at).map(Some))?.into();
        self.stacks.insert(id, stack.clone());
        Ok(stack)
    }

    fn frame(&mut self, id: Id, at: Place) -> Result<Frame, FormatError> {
        if let Some(frame) = self.frames.get(&id) {
            return Ok(frame.clone());
        }
        let (mut filename, mut line, mut name) = (None, 0, None);
        for (key, value) in self.pairs(id, at, "frames")? {
            match key {
                b"filename" => filename = Some(self.string(value, at, "filename")?),
                b"line" => line = self.int(value, at, "line")?,
                b"name" => name = Some(self.string(value, at, "name")?),
                _ => {}
            }
        }
        let missing = |key| move || at.error(key, MISSING);
        let frame = Frame { filename: filename.ok_or_else(missing("filename"))?, line, name: name.ok_or_else(missing("name"))? };
        self.frames.insert(id, frame.clone());
        Ok(frame)
    }

    fn entry(&mut self, id: Id, index: usize) -> Result<Option<TraceEntry>, FormatError> {
        let at = Place { record: "trace entry", index };
        let (mut action, mut addr, mut size, mut stream, mut time_us, mut category) = (None, None, None, 0, 0, None);
        let mut frames = self.no_frames.clone();
        for (key, value) in self.pairs(id, at, "device_traces")? {
            match key {
                b"action" => action = Some(self.name(value, at, "action")?),
                b"addr" => addr = Some(self.size(value, at, "addr")?),
                b"device_free" => addr = Some(self.size(value, at, "device_free")?),
                b"size" => size = Some(self.size(value, at, "size")?),
                b"stream" => stream = self.int(value, at, "stream")?,
                b"time_us" => time_us = self.int(value, at, "time_us")?,
                b"frames" => frames = self.stack(value, at)?,
                b"category" => category = Some(self.string(value, at, "category")?),
                _ => {}
            }
        }
        let name = action.ok_or_else(|| at.error("action", MISSING))?;
        let Some(action) = Action::ALL.into_iter().find(|a| a.name().as_bytes() == name) else { return Ok(None) };
        if !matches!(action, Action::Snapshot | Action::Oom) {
            addr.ok_or_else(|| at.error("addr", MISSING))?;
            size.ok_or_else(|| at.error("size", MISSING))?;
        }
        let (addr, size) = (addr.unwrap_or(0), size.unwrap_or(0));
        Ok(Some(TraceEntry { action, addr, size, stream, time_us, frames, category }))
    }

    fn settings(&mut self, id: Id, at: Place, key: &'static str) -> Result<Vec<(Arc<str>, Value)>, FormatError> {
        let flat = self.arena.dict(id).ok_or_else(|| at.error(key, "is no dictionary"))?;
        let mut all = Vec::new();
        for pair in flat.chunks_exact(2) {
            self.spend(size_of::<(Arc<str>, Value)>() / 8)?;
            all.push((self.string(pair[0], at, key)?, self.value(pair[1], at, key, DEEPEST)?));
        }
        Ok(all)
    }

    fn value(&mut self, id: Id, at: Place, key: &'static str, depth: usize) -> Result<Value, FormatError> {
        let depth = depth.checked_sub(1).ok_or_else(|| at.error(key, "is nested too deeply"))?;
        let each = |d: &mut Self, id, _| d.value(id, at, key, depth).map(Some);
        Ok(match self.arena.node(id) {
            Node::None => Value::None,
            Node::Bool(value) => Value::Bool(value),
            Node::Int(value) => Value::Int(value),
            Node::Float(value) => Value::Float(value),
            Node::Text { .. } => Value::Str(self.string(id, at, key)?),
            Node::List(_) => Value::List(self.list(id, at, key, each)?),
            Node::Tuple(_) => Value::Tuple(self.list(id, at, key, each)?),
            Node::Dict(_) => {
                let mut all = Vec::new();
                for pair in self.arena.dict(id).unwrap_or_default().chunks_exact(2) {
                    self.spend(size_of::<(Value, Value)>() / 8)?;
                    all.push((self.value(pair[0], at, key, depth)?, self.value(pair[1], at, key, depth)?));
                }
                Value::Dict(all)
            }
            Node::Unsigned(_) | Node::Huge | Node::Bytes => return Err(at.error(key, "holds a value that no setting has")),
        })
    }
}
