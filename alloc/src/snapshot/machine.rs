//! The pickle machine, for plain data only: a stack, marks and a memo, over one pass of the file. It recurses nowhere, and each byte
//! of the file adds at most one node, one stack entry and one memo entry.

use super::FormatError;
use super::arena::{Arena, EMPTY, Id, Node};
use super::opcode::*;

/// A memo entry that was never set.
const UNSET: Id = Id::MAX;
const NODE_NONE: Id = 0;
const NODE_FALSE: Id = 1;
const NODE_TRUE: Id = 2;
const NODE_EMPTY_TUPLE: Id = 3;
const NO_NUMBER: &str = "has no number on its line";
const UNDERFLOW: &str = "takes more from the stack than there is";

struct Machine<'a> {
    at: usize,
    /// Start of the current opcode, for errors.
    start: usize,
    arena: Arena<'a>,
    stack: Vec<Id>,
    /// Heights of the stack.
    marks: Vec<u32>,
    memo: Vec<Id>,
}

/// Runs a pickle of protocol 2 to 5; returns its nodes and the root.
pub(super) fn run(file: &[u8]) -> Result<(Arena<'_>, Id), FormatError> {
    // Numbers of nodes and offsets of strings are 32 bits.
    if file.len() >= u32::MAX as usize / 2 {
        return Err(FormatError::TooLarge { limit: u32::MAX as usize / 2 });
    }
    let nodes = vec![Node::None, Node::Bool(false), Node::Bool(true), Node::Tuple(EMPTY)];
    let arena = Arena { file, nodes, items: Vec::new() };
    let mut machine = Machine { at: 0, start: 0, arena, stack: Vec::new(), marks: Vec::new(), memo: Vec::new() };
    if file.first() != Some(&PROTO) {
        return Err(machine.error("is not the start of a pickle of protocol 2 to 5"));
    }
    loop {
        machine.start = machine.at;
        let opcode = machine.take(1)?[0];
        if opcode == STOP {
            let root = machine.pop()?;
            return Ok((machine.arena, root));
        }
        machine.step(opcode)?;
    }
}

impl<'a> Machine<'a> {
    fn step(&mut self, opcode: u8) -> Result<(), FormatError> {
        match opcode {
            PROTO => match self.take(1)?[0] {
                2..=5 => {}
                _ => return Err(self.error("asks for a protocol other than 2 to 5")),
            },
            FRAME => {
                let len = self.length(8)?;
                if len > self.arena.file.len() - self.at {
                    return Err(self.error("begins a frame that is longer than the file"));
                }
            }
            NONE => self.stack.push(NODE_NONE),
            NEWFALSE => self.stack.push(NODE_FALSE),
            NEWTRUE => self.stack.push(NODE_TRUE),
            BININT1 => self.int(1)?,
            BININT2 => self.int(2)?,
            BININT => {
                let bits = unsigned(self.take(4)?) as u32;
                self.push(Node::Int(i64::from(bits as i32)));
            }
            // Python 2 writes what is beyond 32 bits so.
            INT | LONG => {
                let value = self.decimal::<i128>()?;
                let node = i64::try_from(value).map(Node::Int).or_else(|_| u64::try_from(value).map(Node::Unsigned));
                self.push(node.unwrap_or(Node::Huge));
            }
            LONG1 | LONG4 => {
                let len = self.length(if opcode == LONG1 { 1 } else { 4 })?;
                let node = integer(self.take(len)?);
                self.push(node);
            }
            BINFLOAT => {
                let bits = self.take(8)?.iter().fold(0, |bits, b| bits << 8 | u64::from(*b));
                self.push(Node::Float(f64::from_bits(bits)));
            }
            SHORT_BINUNICODE | SHORT_BINSTRING => self.text(1)?,
            BINUNICODE | BINSTRING => self.text(4)?,
            BINUNICODE8 => self.text(8)?,
            SHORT_BINBYTES | BINBYTES | BINBYTES8 | BYTEARRAY8 => {
                let len = self.length(match opcode {
                    SHORT_BINBYTES => 1,
                    BINBYTES => 4,
                    _ => 8,
                })?;
                self.take(len)?;
                self.push(Node::Bytes);
            }
            EMPTY_LIST | EMPTY_SET => self.push(Node::List(EMPTY)),
            EMPTY_TUPLE => self.stack.push(NODE_EMPTY_TUPLE),
            EMPTY_DICT => self.push(Node::Dict(EMPTY)),
            LIST | TUPLE | FROZENSET | DICT => {
                let items = self.pop_mark()?;
                if opcode == DICT && !items.len().is_multiple_of(2) {
                    return Err(self.error("makes a dictionary of an odd number of items"));
                }
                let items = self.keep(items)?;
                self.push(match opcode {
                    LIST => Node::List(items),
                    DICT => Node::Dict(items),
                    _ => Node::Tuple(items),
                });
            }
            TUPLE1 | TUPLE2 | TUPLE3 => {
                let len = (opcode - TUPLE1 + 1) as usize;
                let from = self.stack.len().checked_sub(len).filter(|from| *from >= self.floor());
                let items = self.stack.split_off(from.ok_or_else(|| self.error(UNDERFLOW))?);
                let items = self.keep(items)?;
                self.push(Node::Tuple(items));
            }
            APPEND => {
                let item = self.pop()?;
                self.extend(vec![item], false)?;
            }
            SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.extend(vec![key, value], true)?;
            }
            APPENDS | ADDITEMS | SETITEMS => {
                let items = self.pop_mark()?;
                self.extend(items, opcode == SETITEMS)?;
            }
            MARK => self.marks.push(self.stack.len() as u32),
            POP if self.marks.last().is_some_and(|m| *m as usize == self.stack.len()) => _ = self.marks.pop(),
            POP => _ = self.pop()?,
            POP_MARK => _ = self.pop_mark()?,
            DUP => self.stack.push(self.top()?),
            MEMOIZE => self.put(self.memo.len())?,
            PUT => {
                let index = self.decimal()?;
                self.put(index)?;
            }
            BINPUT | LONG_BINPUT => {
                let index = self.length(if opcode == BINPUT { 1 } else { 4 })?;
                self.put(index)?;
            }
            GET => {
                let index = self.decimal()?;
                self.get(index)?;
            }
            BINGET | LONG_BINGET => {
                let index = self.length(if opcode == BINGET { 1 } else { 4 })?;
                self.get(index)?;
            }
            _ => match refused(opcode) {
                Some(opcode) => return Err(FormatError::Refused { position: self.start, opcode }),
                None => return Err(self.error("is no opcode of plain data in protocols 2 to 5")),
            },
        }
        Ok(())
    }

    fn error(&self, what: &'static str) -> FormatError {
        FormatError::Pickle { position: self.start, what }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let bytes = self.at.checked_add(len).and_then(|end| self.arena.file.get(self.at..end));
        let bytes = bytes.ok_or_else(|| self.error("needs bytes beyond the end of the file"))?;
        self.at += len;
        Ok(bytes)
    }
    /// An unsigned length or index of this many bytes.
    fn length(&mut self, width: usize) -> Result<usize, FormatError> {
        let bytes = self.take(width)?;
        usize::try_from(unsigned(bytes)).map_err(|_| self.error("has a length that no file has"))
    }
    /// A number in digits, up to the end of the line.
    fn decimal<T: std::str::FromStr>(&mut self) -> Result<T, FormatError> {
        let rest = &self.arena.file[self.at..];
        // No number that fits a field has more digits.
        let len = rest.iter().take(32).position(|b| *b == b'\n').ok_or_else(|| self.error(NO_NUMBER))?;
        let line = self.take(len + 1)?.trim_ascii();
        let text = std::str::from_utf8(line.strip_suffix(b"L").unwrap_or(line)).ok();
        text.and_then(|t| t.parse().ok()).ok_or_else(|| self.error(NO_NUMBER))
    }

    fn push(&mut self, node: Node) {
        self.stack.push(self.arena.nodes.len() as Id);
        self.arena.nodes.push(node);
    }
    fn int(&mut self, width: usize) -> Result<(), FormatError> {
        let value = unsigned(self.take(width)?) as i64;
        self.push(Node::Int(value));
        Ok(())
    }
    fn text(&mut self, width: usize) -> Result<(), FormatError> {
        let len = self.length(width)?;
        let start = self.at as u32;
        self.take(len)?;
        self.push(Node::Text { start, len: len as u32 });
        Ok(())
    }

    /// Height of the topmost mark: what lies below is out of reach.
    fn floor(&self) -> usize {
        self.marks.last().map_or(0, |m| *m as usize)
    }
    fn top(&self) -> Result<Id, FormatError> {
        self.stack.get(self.floor()..).and_then(|s| s.last()).copied().ok_or_else(|| self.error(UNDERFLOW))
    }
    fn pop(&mut self) -> Result<Id, FormatError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }
    fn pop_mark(&mut self) -> Result<Vec<Id>, FormatError> {
        let mark = self.marks.pop().ok_or_else(|| self.error("looks for a mark and finds none"))?;
        Ok(self.stack.split_off(mark as usize))
    }

    /// Files the items of a container; returns their number.
    fn keep(&mut self, items: Vec<Id>) -> Result<u32, FormatError> {
        if items.is_empty() {
            return Ok(EMPTY);
        }
        // A container with something in it takes 4 bytes of a file and 50 of memory; hostile files can do with one byte.
        if self.arena.items.len() > self.arena.file.len() / 4 {
            return Err(self.error("makes more containers than the size of the file allows for"));
        }
        self.arena.items.push(items);
        Ok(self.arena.items.len() as u32 - 1)
    }
    /// Adds items to the container on top of the stack.
    fn extend(&mut self, items: Vec<Id>, dict: bool) -> Result<(), FormatError> {
        let target = self.top()? as usize;
        let at = match self.arena.nodes[target] {
            Node::List(at) if !dict => at,
            Node::Dict(at) if dict && items.len().is_multiple_of(2) => at,
            _ if dict => return Err(self.error("sets items of what is no dictionary, or half an item")),
            _ => return Err(self.error("appends to what is no list")),
        };
        if at != EMPTY {
            self.arena.items[at as usize].extend(items);
        } else {
            let at = self.keep(items)?;
            self.arena.nodes[target] = if dict { Node::Dict(at) } else { Node::List(at) };
        }
        Ok(())
    }

    fn put(&mut self, index: usize) -> Result<(), FormatError> {
        let top = self.top()?;
        // Picklers count up from 0, so no index reaches the number of bytes.
        if index > self.arena.file.len() {
            return Err(self.error("names a memo entry beyond the size of the file"));
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, UNSET);
        }
        self.memo[index] = top;
        Ok(())
    }
    fn get(&mut self, index: usize) -> Result<(), FormatError> {
        let id = self.memo.get(index).copied().filter(|id| *id != UNSET);
        self.stack.push(id.ok_or_else(|| self.error("gets a memo entry that was not put"))?);
        Ok(())
    }
}

/// Up to 8 bytes, little-endian.
fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, b| value << 8 | u64::from(*b))
}

/// An integer in two's complement, of any length.
fn integer(bytes: &[u8]) -> Node {
    let sign = if bytes.last().is_some_and(|b| *b >= 0x80) { 0xff } else { 0 };
    let used = bytes.iter().rposition(|b| *b != sign).map_or(0, |i| i + 1);
    if used > 8 {
        return Node::Huge;
    }
    let mut wide = [sign; 8];
    wide[..used].copy_from_slice(&bytes[..used]);
    let value = u64::from_le_bytes(wide);
    // The top bit of the eight bytes is the sign, unless a ninth byte says otherwise.
    match (sign != 0, value >> 63 != 0) {
        (false, true) => Node::Unsigned(value),
        (true, false) => Node::Huge,
        _ => Node::Int(value as i64),
    }
}
