//! Writes a snapshot as a pickle of protocol 4, in the opcodes that PyTorch's viewer knows. A string, a frame or a whole stack is
//! written once and fetched from the memo after that, so an entry takes some 40 bytes however deep its stack.

use super::opcode::*;
use super::*;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

/// Items between a mark and its APPENDS, as in Python: the viewer passes them as arguments of one call.
const BATCH: usize = 1000;

struct Pickler<'a, W: Write> {
    out: W,
    /// Entries in the memo, which the reader counts along.
    memo: u32,
    strings: HashMap<&'a str, u32>,
    frames: HashMap<&'a Frame, u32>,
    stacks: HashMap<&'a [Frame], u32>,
    /// Stacks by address: no need to look into one that is shared.
    known: HashMap<*const Frame, u32>,
}

impl Snapshot {
    /// Writes a pickle that PyTorch's viewer opens (`python3 -m torch.cuda._memory_viz trace_plot FILE`), if [`Snapshot::check`]
    /// has nothing to say. Equal stacks share one copy in the file.
    pub fn write_pickle(&self, out: &mut impl Write) -> io::Result<()> {
        let mut pickler = Pickler {
            out: BufWriter::new(out),
            memo: 0,
            strings: HashMap::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
            known: HashMap::new(),
        };
        pickler.out.write_all(&[PROTO, 4])?;
        pickler.snapshot(self)?;
        pickler.out.write_all(&[STOP])?;
        pickler.out.flush()
    }
}

impl<'a, W: Write> Pickler<'a, W> {
    fn op(&mut self, opcode: u8) -> io::Result<()> {
        self.out.write_all(&[opcode])
    }
    fn memoize(&mut self) -> io::Result<u32> {
        self.op(MEMOIZE)?;
        self.memo += 1;
        Ok(self.memo - 1)
    }
    fn get(&mut self, index: u32) -> io::Result<()> {
        match u8::try_from(index) {
            Ok(index) => self.out.write_all(&[BINGET, index]),
            Err(_) => {
                self.op(LONG_BINGET)?;
                self.out.write_all(&index.to_le_bytes())
            }
        }
    }

    fn int(&mut self, value: i64) -> io::Result<()> {
        if let Ok(value) = u8::try_from(value) {
            self.out.write_all(&[BININT1, value])
        } else if let Ok(value) = u16::try_from(value) {
            self.op(BININT2)?;
            self.out.write_all(&value.to_le_bytes())
        } else if let Ok(value) = i32::try_from(value) {
            self.op(BININT)?;
            self.out.write_all(&value.to_le_bytes())
        } else {
            self.long(i128::from(value))
        }
    }
    fn size(&mut self, value: u64) -> io::Result<()> {
        match i64::try_from(value) {
            Ok(value) => self.int(value),
            Err(_) => self.long(i128::from(value)),
        }
    }
    fn long(&mut self, value: i128) -> io::Result<()> {
        // Two's complement in as few bytes as hold the sign.
        let bits = 128 - if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        let len = bits as usize / 8 + 1;
        self.out.write_all(&[LONG1, len as u8])?;
        self.out.write_all(&value.to_le_bytes()[..len])
    }
    fn bool(&mut self, value: bool) -> io::Result<()> {
        self.op(if value { NEWTRUE } else { NEWFALSE })
    }
    fn string(&mut self, value: &'a str) -> io::Result<()> {
        if let Some(index) = self.strings.get(value) {
            return self.get(*index);
        }
        if let Ok(len) = u8::try_from(value.len()) {
            self.out.write_all(&[SHORT_BINUNICODE, len])?;
        } else {
            let len = u32::try_from(value.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            self.op(BINUNICODE)?;
            self.out.write_all(&len.to_le_bytes())?;
        }
        self.out.write_all(value.as_bytes())?;
        let index = self.memoize()?;
        self.strings.insert(value, index);
        Ok(())
    }

    fn list<T>(&mut self, items: &'a [T], each: impl Fn(&mut Self, &'a T) -> io::Result<()>) -> io::Result<()> {
        self.op(EMPTY_LIST)?;
        for batch in items.chunks(BATCH) {
            self.op(MARK)?;
            for item in batch {
                each(self, item)?;
            }
            self.op(APPENDS)?;
        }
        Ok(())
    }
    /// A dictionary: `body` writes keys and values in turn.
    fn dict(&mut self, body: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.out.write_all(&[EMPTY_DICT, MARK])?;
        body(self)?;
        self.op(SETITEMS)
    }
    fn key_int(&mut self, key: &'static str, value: i64) -> io::Result<()> {
        self.string(key)?;
        self.int(value)
    }
    fn key_size(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.string(key)?;
        self.size(value)
    }
    fn key_string(&mut self, key: &'static str, value: &'a str) -> io::Result<()> {
        self.string(key)?;
        self.string(value)
    }

    fn snapshot(&mut self, snapshot: &'a Snapshot) -> io::Result<()> {
        self.dict(|p| {
            p.string("segments")?;
            p.list(&snapshot.segments, Pickler::segment)?;
            p.string("device_traces")?;
            p.list(&snapshot.device_traces, |p, trace| p.list(trace, Pickler::entry))?;
            p.string("allocator_settings")?;
            p.settings(&snapshot.allocator_settings)?;
            p.string("external_annotations")?;
            p.list(&snapshot.external_annotations, |p, annotation| p.settings(annotation))
        })
    }

    fn segment(&mut self, segment: &'a Segment) -> io::Result<()> {
        self.dict(|p| {
            p.key_size("device", segment.device as u64)?;
            p.key_size("address", segment.address)?;
            p.key_size("total_size", segment.total_size)?;
            p.key_size("allocated_size", segment.allocated_size)?;
            p.key_size("active_size", segment.active_size)?;
            p.key_size("requested_size", segment.requested_size)?;
            p.key_int("stream", segment.stream)?;
            p.key_string("segment_type", segment.segment_type.name())?;
            p.string("segment_pool_id")?;
            p.size(segment.segment_pool_id.0)?;
            p.size(segment.segment_pool_id.1)?;
            p.op(TUPLE2)?;
            p.string("is_expandable")?;
            p.bool(segment.is_expandable)?;
            p.stack(&segment.frames)?;
            p.string("blocks")?;
            p.list(&segment.blocks, Pickler::block)
        })
    }

    fn block(&mut self, block: &'a Block) -> io::Result<()> {
        self.dict(|p| {
            p.key_size("address", block.address)?;
            p.key_size("size", block.size)?;
            p.key_size("requested_size", block.requested_size)?;
            p.key_string("state", block.state.name())?;
            p.stack(&block.frames)
        })
    }

    fn entry(&mut self, entry: &'a TraceEntry) -> io::Result<()> {
        self.dict(|p| {
            p.key_string("action", entry.action.name())?;
            p.key_size(if entry.action == Action::Oom { "device_free" } else { "addr" }, entry.addr)?;
            p.key_size("size", entry.size)?;
            p.key_int("stream", entry.stream)?;
            p.key_int("time_us", entry.time_us)?;
            if let Some(category) = &entry.category {
                p.key_string("category", category)?;
            }
            p.stack(&entry.frames)
        })
    }

    /// The key `frames` and its value.
    fn stack(&mut self, stack: &'a Arc<[Frame]>) -> io::Result<()> {
        self.string("frames")?;
        if let Some(index) = self.known.get(&stack.as_ptr()).or_else(|| self.stacks.get(&stack[..])) {
            return self.get(*index);
        }
        self.list(stack, Pickler::frame)?;
        let index = self.memoize()?;
        self.stacks.insert(stack, index);
        // Empty stacks may share an address with anything.
        if !stack.is_empty() {
            self.known.insert(stack.as_ptr(), index);
        }
        Ok(())
    }

    fn frame(&mut self, frame: &'a Frame) -> io::Result<()> {
        if let Some(index) = self.frames.get(frame) {
            return self.get(*index);
        }
        self.dict(|p| {
            p.key_string("name", &frame.name)?;
            p.key_string("filename", &frame.filename)?;
            p.key_int("line", frame.line)
        })?;
        let index = self.memoize()?;
        self.frames.insert(frame, index);
        Ok(())
    }

    fn settings(&mut self, settings: &'a [(Arc<str>, Value)]) -> io::Result<()> {
        self.dict(|p| {
            settings.iter().try_for_each(|(name, value)| {
                p.string(name)?;
                p.value(value)
            })
        })
    }

    fn value(&mut self, value: &'a Value) -> io::Result<()> {
        match value {
            Value::None => self.op(NONE),
            Value::Bool(value) => self.bool(*value),
            Value::Int(value) => self.int(*value),
            Value::Float(value) => {
                self.op(BINFLOAT)?;
                self.out.write_all(&value.to_be_bytes())
            }
            Value::Str(value) => self.string(value),
            Value::List(items) => self.list(items, Pickler::value),
            Value::Tuple(items) => {
                self.op(MARK)?;
                items.iter().try_for_each(|item| self.value(item))?;
                self.op(TUPLE)
            }
            Value::Dict(pairs) => self.dict(|p| {
                pairs.iter().try_for_each(|(key, value)| {
                    p.value(key)?;
                    p.value(value)
                })
            }),
        }
    }
}
