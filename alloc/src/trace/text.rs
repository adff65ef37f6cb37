//! The two formats of lines: our log, and CSV.

use super::{Builder, Event, FormatError, Trace};
use crate::Category;
use std::io::{self, BufWriter, Write};

/// Lines that are not blank, with their numbers from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|b| *b == b'\n')
        .map(<[u8]>::trim_ascii)
        .enumerate()
        .map(|(i, line)| (i + 1, line))
        .filter(|(_, line)| !line.is_empty())
}

/// A field of a line: what is said where it is missing, and where it is malformed.
#[derive(Clone, Copy)]
struct Field(&'static str, &'static str);

const ID: Field = Field("has no id", "has an id that is no number from 0 on");
const SIZE: Field = Field("has no size in bytes", "has a size that is no number of bytes");
const STREAM: Field = Field("has no stream number", "has a stream that is no number from 0 on");

impl Field {
    fn of<T: std::str::FromStr>(self, text: Option<&[u8]>, line: usize) -> Result<T, FormatError> {
        let text = text.filter(|text| !text.is_empty()).ok_or(FormatError::Line { line, what: self.0 })?;
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        number.ok_or(FormatError::Line { line, what: self.1 })
    }
}

/// Whether the first line looks like one of the log; an empty file is an empty log.
pub(super) fn is_log(bytes: &[u8]) -> bool {
    let first = lines(bytes).next().and_then(|(_, line)| line.split(|b| *b == b' ').next());
    first.is_none_or(|word| matches!(word, b"a" | b"f"))
}

fn double(line: usize, id: u64) -> FormatError {
    FormatError::DoubleAlloc { place: "line", position: line, id }
}

/// `a ID BYTES STREAM [CATEGORY]` and `f ID`. A category is the rest of its line, since names may hold spaces.
pub(super) fn parse_log(bytes: &[u8]) -> Result<Trace, FormatError> {
    let mut builder = Builder::default();
    for (line, text) in lines(bytes) {
        let mut fields = text.splitn(5, |b| *b == b' ');
        match fields.next() {
            Some(b"a") => {
                let id = ID.of(fields.next(), line)?;
                let bytes = SIZE.of(fields.next(), line)?;
                let stream = STREAM.of(fields.next(), line)?;
                let category =
                    fields.next().map(|name| category(name).ok_or(FormatError::Line { line, what: "has an unknown category" }));
                if !builder.alloc(id, bytes, stream, category.transpose()?) {
                    return Err(double(line, id));
                }
            }
            Some(b"f") => {
                builder.free(ID.of(fields.next(), line)?);
                if fields.next().is_some() {
                    return Err(FormatError::Line { line, what: "has words after the id" });
                }
            }
            _ => return Err(FormatError::Line { line, what: "is neither `a ID BYTES STREAM [CATEGORY]` nor `f ID`" }),
        }
    }
    Ok(builder.finish())
}

fn category(name: &[u8]) -> Option<Category> {
    Category::ALL.into_iter().find(|c| c.name().as_bytes() == name)
}

/// `op,id,size,stream,t_us` after a header; seeds come first, wherever they stand.
pub(super) fn parse_csv(bytes: &[u8]) -> Result<Trace, FormatError> {
    let mut builder = Builder::default();
    let (mut header, mut rows) = (true, Vec::new());
    for (line, text) in lines(bytes) {
        if header {
            if !text.starts_with(b"op,id,size,stream") {
                return Err(FormatError::Line { line, what: "is not the header `op,id,size,stream,t_us`" });
            }
            header = false;
            continue;
        }
        let mut fields = text.split(|b| *b == b',');
        let op = fields.next().unwrap_or_default();
        match op {
            b"seed" | b"alloc" => {
                let id = ID.of(fields.next(), line)?;
                let bytes = SIZE.of(fields.next(), line)?;
                let stream = STREAM.of(fields.next(), line)?;
                if op == b"alloc" {
                    rows.push((line, Event::Alloc { id, bytes, stream, category: None }));
                } else if !builder.alloc(id, bytes, stream, None) {
                    return Err(double(line, id));
                }
            }
            b"free" => match fields.next() {
                // A block that nobody knows.
                Some(b"-1") => builder.drop_free(),
                id => rows.push((line, Event::Free { id: ID.of(id, line)? })),
            },
            b"free_req" => {}
            _ if op.starts_with(b"segment_") => {}
            _ => return Err(FormatError::Line { line, what: "has an unknown op" }),
        }
    }
    for (line, event) in rows {
        match event {
            Event::Alloc { id, bytes, stream, category } if !builder.alloc(id, bytes, stream, category) => {
                return Err(double(line, id));
            }
            Event::Alloc { .. } => {}
            Event::Free { id } => builder.free(id),
        }
    }
    Ok(builder.finish())
}

pub(super) fn write_log(events: &[Event], out: &mut impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for event in events {
        match *event {
            Event::Alloc { id, bytes, stream, category: Some(category) } => {
                writeln!(out, "a {id} {bytes} {stream} {}", category.name())?
            }
            Event::Alloc { id, bytes, stream, category: None } => writeln!(out, "a {id} {bytes} {stream}")?,
            Event::Free { id } => writeln!(out, "f {id}")?,
        }
    }
    out.flush()
}
