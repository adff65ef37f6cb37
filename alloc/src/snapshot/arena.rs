//! What a pickle builds, as numbered nodes of 16 bytes that refer to each other: a pickle may share values and even make cycles,
//! so it is no tree, and nothing here is freed or walked recursively. Strings stay where they are, in the file.

/// The number of a node.
pub(super) type Id = u32;

#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// An integer from 2^63 on, below 2^64.
    Unsigned(u64),
    /// An integer of more bits than any field has.
    Huge,
    Float(f64),
    /// A range of the file.
    Text {
        start: u32,
        len: u32,
    },
    /// Bytes of any kind; no field has such.
    Bytes,
    /// The numbers are of `Arena::items`; [`EMPTY`] until something is added.
    List(u32),
    Tuple(u32),
    /// Key, value, key, value...
    Dict(u32),
}

pub(super) const EMPTY: u32 = u32::MAX;

pub(super) struct Arena<'a> {
    pub(super) file: &'a [u8],
    pub(super) nodes: Vec<Node>,
    pub(super) items: Vec<Vec<Id>>,
}

impl Arena<'_> {
    pub(super) fn node(&self, id: Id) -> Node {
        self.nodes[id as usize]
    }
    fn at(&self, items: u32) -> &[Id] {
        self.items.get(items as usize).map_or(&[], Vec::as_slice)
    }
    /// The items of a list or tuple.
    pub(super) fn list(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::List(items) | Node::Tuple(items) => Some(self.at(items)),
            _ => None,
        }
    }
    /// The pairs of a dictionary, flat.
    pub(super) fn dict(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::Dict(items) => Some(self.at(items)),
            _ => None,
        }
    }
    pub(super) fn text(&self, id: Id) -> Option<&[u8]> {
        match self.node(id) {
            Node::Text { start, len } => self.file.get(start as usize..start as usize + len as usize),
            _ => None,
        }
    }
}
