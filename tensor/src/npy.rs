//! Tensors in NumPy's files: a magic word, a version, a header (a Python dict with type, order and shape), then the elements.
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//!
//! A file is material from outside: every number in it is checked against the length of the file before it is used, and no more memory is taken
//! than that.

use crate::{DType, Device, Error, Result, Shape, Tensor, exec, modes};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header that is read; those of plain arrays are far shorter.
const LONGEST: u64 = 1 << 16;
/// Bytes that pass through the host at a time.
const PIECE: usize = 32 << 20;

/// The names files use; the first of a type is the one that is written.
const TYPES: [(DType, &str); 8] = [
    (DType::F64, "<f8"),
    (DType::F32, "<f4"),
    (DType::F16, "<f2"),
    (DType::I64, "<i8"),
    (DType::U32, "<u4"),
    (DType::U8, "|u1"),
    (DType::U8, "<u1"),
    (DType::U8, "|b1"),
];

fn error(path: &Path, message: impl ToString) -> Error {
    Error::File { path: path.display().to_string(), message: message.to_string() }
}

/// What a header says.
#[derive(Debug, PartialEq)]
struct Header {
    dtype: DType,
    fortran: bool,
    shape: Vec<usize>,
}

/// A reader of the few Python literals that stand in a header.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// Takes a token where it comes next.
    fn take(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        let found = self.rest.strip_prefix(token);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }
    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("the header lacks {token:?} before {:?}", self.next())) }
    }
    /// The next few characters, for messages.
    fn next(&self) -> String {
        self.rest.chars().take(20).collect()
    }
    fn string(&mut self) -> Result<&'a str, String> {
        for quote in ["'", "\""] {
            if self.take(quote) {
                let (text, rest) = self.rest.split_once(quote).ok_or("the header has a string without an end")?;
                self.rest = rest;
                return Ok(text);
            }
        }
        Err(format!("the header lacks a string before {:?}", self.next()))
    }
    fn number(&mut self) -> Option<Result<usize, String>> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        (end > 0).then(|| digits.parse().map_err(|_| format!("a dim of {digits} is larger than any file")))
    }
    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        self.expect("(")?;
        let mut dims = Vec::new();
        while let Some(n) = self.number() {
            dims.push(n?);
            if !self.take(",") {
                break;
            }
        }
        self.expect(")")?;
        Ok(dims)
    }
}

impl Header {
    fn parse(text: &str) -> Result<Header, String> {
        let mut parser = Parser { rest: text };
        let (mut dtype, mut fortran, mut shape) = (None, None, None);
        parser.expect("{")?;
        while !parser.take("}") {
            let key = parser.string()?;
            parser.expect(":")?;
            let twice = match key {
                "descr" => {
                    let name = parser.string()?;
                    let found = TYPES.iter().find(|(_, n)| *n == name);
                    let known = || TYPES.map(|(_, n)| n).join(", ");
                    let (found, _) =
                        found.ok_or_else(|| format!("elements of type {name:?} are not read; known are {}", known()))?;
                    dtype.replace(*found).is_some()
                }
                "fortran_order" => {
                    let value = parser.take("True");
                    if !value {
                        parser.expect("False")?;
                    }
                    fortran.replace(value).is_some()
                }
                "shape" => shape.replace(parser.tuple()?).is_some(),
                _ => return Err(format!("the header has an unknown entry {key:?}")),
            };
            if twice {
                return Err(format!("the header has {key:?} twice"));
            }
            if !parser.take(",") {
                parser.expect("}")?;
                break;
            }
        }
        if !parser.rest.trim().is_empty() {
            return Err(format!("the header goes on after its end: {:?}", parser.next()));
        }
        match (dtype, fortran, shape) {
            (Some(dtype), Some(fortran), Some(shape)) => Ok(Header { dtype, fortran, shape }),
            _ => Err("the header lacks descr, fortran_order or shape".to_owned()),
        }
    }

    /// The header of a file, and how many bytes of elements follow it.
    fn read(file: &mut File) -> Result<(Header, u64), String> {
        let io = |e: std::io::Error| e.to_string();
        let length = file.metadata().map_err(io)?.len();
        let mut front = [0; 8];
        if length < 10 {
            return Err(format!("{length} bytes are too few for an npy file"));
        }
        file.read_exact(&mut front).map_err(io)?;
        if front[..6] != *MAGIC {
            return Err("is no npy file: its first bytes are others".to_owned());
        }
        let mut prefix = [0; 4];
        let prefix_len = match front[6] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(format!("is of version {version} of the format; 1 to 3 are known")),
        };
        file.read_exact(&mut prefix[..prefix_len]).map_err(io)?;
        let header = u64::from(u32::from_le_bytes(prefix));
        let rest = length.saturating_sub(8 + prefix_len as u64);
        if header > LONGEST || header > rest {
            return Err(format!("a header of {header} bytes does not fit a file of {length} bytes (at most {LONGEST})"));
        }
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text).map_err(io)?;
        let text = std::str::from_utf8(&text).map_err(|e| format!("the header is not UTF-8: {e}"))?;
        Ok((Header::parse(text)?, rest - header))
    }
}

impl Tensor {
    /// The array in a file that NumPy wrote (`np.save`), on a device. An array in Fortran order becomes a view with its dims permuted.
    ///
    /// Elements are little-endian f64, f32, f16, i64, u32, u8 or bool (as u8).
    ///
    /// # Errors
    /// [`Error::File`]: what the file system says, another type of elements, a file that is damaged or has another length than its header says.
    #[track_caller]
    pub fn load_npy(path: impl AsRef<Path>, device: &Device) -> Result<Tensor> {
        let path = path.as_ref();
        let io = |e: std::io::Error| error(path, e);
        let mut file = File::open(path).map_err(io)?;
        let (Header { dtype, fortran, shape }, data) = Header::read(&mut file).map_err(|message| error(path, message))?;
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let dims = if fortran { order.iter().map(|&d| shape[d]).collect() } else { shape };
        let shape = Shape::from(dims);
        let elements = shape.checked_elements("load_npy", dtype).map_err(|e| error(path, e))?;
        let bytes = elements * dtype.size();
        if bytes as u64 != data {
            return Err(error(
                path,
                format!("shape {shape} of {dtype} takes {bytes} bytes, the file has {data} after its header"),
            ));
        }
        let out = exec::empty("load_npy", &shape, dtype, device).map_err(|e| e.in_op("load_npy"))?;
        let stream = device.stream();
        let mut token = out.storage().write_new(&stream)?;
        let mut piece = vec![0; PIECE.min(bytes)];
        for done in (0..bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(bytes - done)];
            file.read_exact(piece).map_err(io)?;
            kiln_alloc::upload(piece, &mut token, done)?;
        }
        drop(token);
        if fortran { out.permute(&order) } else { Ok(out) }
    }

    /// Writes this tensor to a file that `np.load` reads, in C order. The file appears whole or not at all: it is written under another name beside `path`,
    /// then renamed.
    ///
    /// # Errors
    /// What the file system says; for bf16, which NumPy lacks; on a dry-run device, which has no values.
    pub fn save_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.device().is_dry_run() {
            return Err(Error::DryRun { op: "save_npy" });
        }
        let Some((_, descr)) = TYPES.iter().find(|(dtype, _)| *dtype == self.dtype()) else {
            return Err(Error::dtype("save_npy", format!("NumPy has no {}; convert with `to_dtype`", self.dtype())));
        };
        // Renaming a file onto a device or a pipe would replace it.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(error(path, "is there already, and no file"));
        }
        let Some(name) = path.file_name() else { return Err(error(path, "is no name of a file")) };
        let mut unfinished = name.to_owned();
        unfinished.push(format!(".{}.unfinished", std::process::id()));
        let unfinished = path.with_file_name(unfinished);
        let written =
            self.write_npy(&unfinished, descr).and_then(|()| std::fs::rename(&unfinished, path).map_err(|e| error(path, e)));
        if written.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        written
    }

    fn write_npy(&self, path: &Path, descr: &str) -> Result<()> {
        let io = |e: std::io::Error| error(path, e);
        let tensor = modes::no_grad(|| self.detach().contiguous())?;
        let mut dims: String = tensor.dims().iter().map(|n| format!("{n}, ")).collect();
        if tensor.rank() > 1 {
            dims.truncate(dims.len() - 2);
        }
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
        // Elements begin at a multiple of 64 bytes, after a line break.
        let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
        header.extend(std::iter::repeat_n(' ', padded - 1 - header.len()));
        header.push('\n');
        let file = File::create(path).map_err(io)?;
        let mut out = BufWriter::new(&file);
        out.write_all(MAGIC).and_then(|()| out.write_all(&[1, 0])).map_err(io)?;
        let length = u16::try_from(header.len()).map_err(|e| error(path, e))?;
        out.write_all(&length.to_le_bytes()).and_then(|()| out.write_all(header.as_bytes())).map_err(io)?;
        let size = tensor.dtype().size();
        let (start, bytes, stream) = (tensor.layout().offset() * size, tensor.elem_count() * size, tensor.device().stream());
        let read = tensor.storage().read(&stream)?;
        let mut piece = vec![0; PIECE.min(bytes)];
        for done in (0..bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(bytes - done)];
            kiln_alloc::download(&read, start + done, piece)?;
            out.write_all(piece).map_err(io)?;
        }
        tensor.device().check_errors()?;
        out.flush().map_err(io)?;
        drop(out);
        file.sync_all().map_err(io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Header, String> {
        Header::parse(text)
    }

    #[test]
    fn headers_as_numpy_and_others_write_them() {
        let wanted = |shape: &[usize]| Ok(Header { dtype: DType::F32, fortran: false, shape: shape.to_vec() });
        assert_eq!(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n"), wanted(&[3, 4]));
        assert_eq!(parse("{\"shape\":(3,),\"fortran_order\":False,\"descr\":\"<f4\"}"), wanted(&[3]));
        assert_eq!(parse("{'descr': '<f4', 'fortran_order': False, 'shape': ()}"), wanted(&[]));
    }

    #[test]
    fn other_headers_are_refused() {
        let with =
            |descr: &str, order: &str, shape: &str| format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}");
        for bad in [
            with("'>f4'", "False", "(1,)"),
            with("'<c8'", "False", "(1,)"),
            with("[('a', '<f4')]", "False", "(1,)"),
            with("'<f4'", "0", "(1,)"),
            with("'<f4'", "False", "(-1,)"),
            with("'<f4'", "False", "(1.5,)"),
            with("'<f4'", "False", "(99999999999999999999,)"),
            with("'<f4'", "False", "(1,"),
            with("'<f4'", "False", "1"),
            with("'<f4", "False", "(1,)"),
            with("'<f4'", "False", "(1,), 'shape': (2,)"),
            with("'<f4'", "False", "(1,), 'more': 'x'"),
            with("'<f4'", "False", "(1,)") + "x",
            "{'descr': '<f4', 'shape': (1,)}".to_owned(),
            String::new(),
            "{".repeat(50_000),
        ] {
            assert!(parse(&bad).is_err(), "{bad:.80}");
        }
    }
}
