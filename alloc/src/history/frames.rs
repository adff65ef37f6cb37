//! Lines and stacks as frames of a snapshot, each made once and shared.

use crate::snapshot::Frame;
use std::backtrace::Backtrace;
use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;

/// What PyTorch writes where it knows no name.
const NO_NAME: &str = "??";
/// Whose frames say nothing of who called the allocator.
const OURS: [&str; 8] = ["std::", "core::", "alloc::", "kiln_alloc::", "<std::", "<core::", "<alloc::", "<kiln_alloc::"];

/// What stands between a block and whoever dropped it.
const DROP: &str = "drop_in_place";

/// Frames made so far.
#[derive(Default)]
pub(crate) struct Frames {
    strings: HashSet<Arc<str>>,
    sites: HashMap<(&'static str, u32, u32), Arc<[Frame]>>,
    /// By what the backtrace says.
    stacks: HashMap<String, Arc<[Frame]>>,
}

impl Frames {
    /// The frames of an event: its stack where there is one, else its line.
    pub(crate) fn of(&mut self, site: Option<&'static Location<'static>>, stack: Option<&Backtrace>) -> Arc<[Frame]> {
        match (stack, site) {
            (Some(stack), _) => self.stack(stack.to_string(), site),
            (None, Some(site)) => self.site(site),
            (None, None) => Arc::default(),
        }
    }
    /// One frame: a line of source.
    pub(crate) fn site(&mut self, site: &'static Location<'static>) -> Arc<[Frame]> {
        let key = (site.file(), site.line(), site.column());
        if let Some(frames) = self.sites.get(&key) {
            return frames.clone();
        }
        let (filename, name) = (self.string(site.file()), self.string(NO_NAME));
        let frames: Arc<[Frame]> = Arc::new([Frame { filename, line: i64::from(site.line()), name }]);
        self.sites.insert(key, frames.clone());
        frames
    }
    /// The frames that a backtrace tells, from the line that called the allocator on.
    fn stack(&mut self, text: String, site: Option<&'static Location<'static>>) -> Arc<[Frame]> {
        if let Some(frames) = self.stacks.get(&text) {
            return frames.clone();
        }
        let mut list: Vec<Frame> = Vec::new();
        for line in text.lines().map(str::trim_start) {
            if let Some(place) = line.strip_prefix("at ") {
                if let Some(frame) = list.last_mut() {
                    let (filename, line) = place_of(place);
                    (frame.filename, frame.line) = (self.string(filename), line);
                }
            } else if let Some((_, name)) = line.split_once(": ") {
                let (filename, name) = (self.string(NO_NAME), self.string(name));
                list.push(Frame { filename, line: 0, name });
            }
        }
        let ours = match site {
            Some(site) => {
                list.iter().position(|frame| frame.line == i64::from(site.line()) && same_file(&frame.filename, site.file()))
            }
            None => list.iter().position(|frame| frame.name.contains(DROP)).map(|at| at + 1),
        };
        // Where there is no debug information there are only names.
        let by_name = || list.iter().take_while(|frame| OURS.iter().any(|prefix| frame.name.starts_with(prefix))).count();
        let ours = ours.unwrap_or_else(by_name);
        if ours < list.len() {
            list.drain(..ours);
        }
        let frames: Arc<[Frame]> = list.into();
        self.stacks.insert(text, frames.clone());
        frames
    }
    fn string(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.strings.insert(new.clone());
        new
    }
}

/// Whether two paths, relative to who knows what, may be those of one file.
fn same_file(a: &str, b: &str) -> bool {
    Path::new(a).file_name() == Path::new(b).file_name()
}
/// File and line of `file:line:column`.
fn place_of(place: &str) -> (&str, i64) {
    let mut parts = place.rsplitn(3, ':');
    let (_, line, file) = (parts.next(), parts.next(), parts.next());
    match (file, line.and_then(|line| line.parse().ok())) {
        (Some(file), Some(line)) => (file, line),
        _ => (place, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backtrace_becomes_frames_from_the_caller_on() {
        let text = "   0: std::backtrace::Backtrace::capture\n             at /rustc/1/std.rs:1:2\n   1: kiln_alloc::go\n   2: forward\n\
                    \x20            at ./src/model.rs:17:9\n   3: main\n";
        let mut frames = Frames::default();
        let stack = frames.stack(text.into(), None);
        let list: Vec<_> = stack.iter().map(|frame| (&*frame.name, &*frame.filename, frame.line)).collect();
        assert_eq!(list, [("forward", "./src/model.rs", 17), ("main", "??", 0)]);
        assert!(Arc::ptr_eq(&stack, &frames.stack(text.into(), None)));
    }
}
