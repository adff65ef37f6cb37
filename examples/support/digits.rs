//! Handwritten digits of 8 × 8 pixels, from a CSV, cut into a training and a test set.

use kiln::nn::TensorDataset;
use kiln::{Device, Error, Result, Tensor};
use std::path::Path;

/// Pixels of a digit, row by row.
pub const PIXELS: usize = 64;
/// Digits there are.
pub const CLASSES: usize = 10;

const EMBEDDED: &str = include_str!("../data/digits.csv");
const FEWEST: usize = 10;

/// Digits and their labels.
#[derive(Clone)]
pub struct Digits {
    /// Of each digit, from 0 (paper) to 1 (ink).
    pub pixels: Vec<[f32; PIXELS]>,
    /// Of each digit, 0 to 9.
    pub labels: Vec<i64>,
}

impl Digits {
    /// Training and test set, from a file or else from the data built in: 20 % are held out by a shuffle that is always the same.
    ///
    /// # Errors
    /// Where the file cannot be read, or a line is no digit: says which line and what is wrong with it.
    pub fn load(path: Option<&Path>) -> Result<(Digits, Digits)> {
        let all = match path {
            None => Digits::parse("digits.csv", EMBEDDED)?,
            Some(path) => {
                let name = path.display().to_string();
                let file = |e: std::io::Error| Error::File { path: name.clone(), message: e.to_string() };
                let bytes = std::fs::read(path).map_err(file)?;
                let text = String::from_utf8(bytes).map_err(|e| bad_text(&name, &e))?;
                Digits::parse(&name, &text)?
            }
        };
        let mut order: Vec<usize> = (0..all.len()).collect();
        Shuffle(0).shuffle(&mut order);
        let (test, train) = order.split_at(all.len() / 5);
        Ok((all.pick(train), all.pick(test)))
    }

    fn parse(name: &str, text: &str) -> Result<Digits> {
        let mut digits = Digits { pixels: Vec::new(), labels: Vec::new() };
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let (pixels, label) = parse_line(line)
                .map_err(|wrong| Error::File { path: name.into(), message: format!("line {}: {wrong}", i + 1) })?;
            digits.pixels.push(pixels);
            digits.labels.push(label);
        }
        if digits.len() < FEWEST {
            let message = format!("holds {} digits, and at least {FEWEST} are wanted", digits.len());
            return Err(Error::File { path: name.into(), message });
        }
        Ok(digits)
    }

    fn pick(&self, indices: &[usize]) -> Digits {
        Digits {
            pixels: indices.iter().map(|&i| self.pixels[i]).collect(),
            labels: indices.iter().map(|&i| self.labels[i]).collect(),
        }
    }

    /// Number of digits.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Inputs `[n, 64]` in f32 and targets `[n]` in i64, in host memory.
    pub fn dataset(&self) -> Result<TensorDataset<f32, i64>> {
        TensorDataset::new(self.pixels.as_flattened().to_vec(), (self.len(), PIXELS), self.labels.clone(), self.len())
    }
    /// All of them on a device: `[n, 64]` and `[n]`.
    pub fn tensors(&self, device: &Device) -> Result<(Tensor, Tensor)> {
        let pixels = Tensor::from_slice(self.pixels.as_flattened(), (self.len(), PIXELS), device)?;
        Ok((pixels, Tensor::from_slice(&self.labels, self.len(), device)?))
    }
}

/// 64 pixels and a label, or what is wrong.
fn parse_line(line: &str) -> Result<([f32; PIXELS], i64), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() != PIXELS + 1 {
        return Err(format!("{} fields, and {} are wanted: {PIXELS} pixels and a label", fields.len(), PIXELS + 1));
    }
    let mut pixels = [0.0; PIXELS];
    for (i, field) in fields[..PIXELS].iter().enumerate() {
        match field.parse::<f32>() {
            Ok(value) if (0.0..=16.0).contains(&value) => pixels[i] = value / 16.0,
            _ => return Err(format!("pixel {} is {field:?}, no number from 0 to 16", i + 1)),
        }
    }
    match fields[PIXELS].parse() {
        Ok(label) if (0..CLASSES as i64).contains(&label) => Ok((pixels, label)),
        _ => Err(format!("the label is {:?}, no digit from 0 to 9", fields[PIXELS])),
    }
}

fn bad_text(name: &str, error: &std::string::FromUtf8Error) -> Error {
    let lines = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&b| b == b'\n').count();
    Error::File { path: name.into(), message: format!("line {}: not UTF-8 text", lines + 1) }
}

/// A stream of random numbers (SplitMix64) for the order of things on the host.
pub struct Shuffle(pub u64);

impl Shuffle {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) as u128 * n as u128) >> 64) as usize
    }
    /// Shuffles in place (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
