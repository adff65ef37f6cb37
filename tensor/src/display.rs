//! Values as PyTorch prints them, then shape, type and device. Of more than 1000 elements only the first and last three along each dim are read and shown.

use crate::{DType, Error, Result, Scalar, Tensor, modes};
use half::{bf16, f16};
use kiln_kernels::Element;
use std::fmt;

/// Up to so many elements are shown in full.
const FULL: usize = 1000;
/// Of longer dims, so many entries at either end are shown.
const EDGE: usize = 3;
/// Lines are broken at so many characters.
const WIDTH: usize = 80;

impl fmt::Display for Tensor {
    /// Waits for the device. Never fails for want of values: it says why there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An empty tensor may have any number of empty rows.
        let cut = self.elem_count() > FULL || self.dims().iter().any(|&d| d > FULL);
        match modes::no_grad(|| Numbers::of(self, cut)) {
            Ok(numbers) => {
                let style = Style::of(&numbers.values);
                let mut cells = numbers.values.iter().map(|v| style.format(*v));
                let printer = Printer { dims: self.dims(), cut, width: style.width };
                printer.write(f, &mut cells, 0)?;
                writeln!(f)?;
            }
            Err(Error::DryRun { .. }) => writeln!(f, "[no values: dry run]")?,
            Err(e) => writeln!(f, "[no values: {e}]")?,
        }
        write!(f, "{self:?}")
    }
}

/// The values that are shown, in order.
struct Numbers {
    values: Vec<Scalar>,
}

impl Numbers {
    fn of(x: &Tensor, cut: bool) -> Result<Numbers> {
        if x.device().is_dry_run() {
            return Err(Error::DryRun { op: "display" });
        }
        let mut x = x.detach();
        for d in (0..x.rank()).filter(|_| cut) {
            let size = x.dims()[d];
            if size > 2 * EDGE {
                x = Tensor::cat(&[x.narrow(d, 0, EDGE)?, x.narrow(d, size - EDGE, EDGE)?], d)?;
            }
        }
        fn scalars<T: Element>(x: &Tensor) -> Result<Vec<Scalar>> {
            Ok(x.to_vec::<T>()?.into_iter().map(T::to_scalar).collect())
        }
        let values = match x.dtype() {
            DType::F64 => scalars::<f64>(&x)?,
            DType::F32 => scalars::<f32>(&x)?,
            DType::F16 => scalars::<f16>(&x)?,
            DType::BF16 => scalars::<bf16>(&x)?,
            DType::I64 => scalars::<i64>(&x)?,
            DType::U32 => scalars::<u32>(&x)?,
            DType::U8 => scalars::<u8>(&x)?,
        };
        Ok(Numbers { values })
    }
}

/// How all numbers of a tensor are written.
#[derive(Clone, Copy)]
enum Form {
    /// Integers, and floats that are whole: `2.`
    Whole,
    /// Four digits after the point.
    Fixed,
    /// Four digits and an exponent, where the smallest and the largest are far apart.
    Scientific,
}

struct Style {
    form: Form,
    width: usize,
}

impl Style {
    fn of(values: &[Scalar]) -> Style {
        let finite = || values.iter().map(|v| v.to_f64().abs()).filter(|v| v.is_finite());
        let largest = finite().fold(0.0, f64::max);
        let smallest = finite().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let whole = finite().all(|v| v.fract() == 0.0);
        let floats = matches!(values.first(), Some(Scalar::Float(_)));
        let form = match (floats, whole) {
            (false, _) => Form::Whole,
            (true, _) if largest > 1e8 || largest > 1000.0 * smallest => Form::Scientific,
            (true, true) => Form::Whole,
            (true, false) if smallest < 1e-4 => Form::Scientific,
            (true, false) => Form::Fixed,
        };
        let mut style = Style { form, width: 0 };
        style.width = values.iter().map(|v| style.format(*v).len()).max().unwrap_or(0);
        style
    }
    fn format(&self, value: Scalar) -> String {
        match (value, self.form) {
            (Scalar::Int(v), _) => v.to_string(),
            (Scalar::Float(v), _) if v.is_nan() => "nan".into(),
            (Scalar::Float(v), _) if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.into(),
            (Scalar::Float(v), Form::Whole) => format!("{v:.0}."),
            (Scalar::Float(v), Form::Fixed) => format!("{v:.4}"),
            (Scalar::Float(v), Form::Scientific) => {
                // 1.5000e-3 is written 1.5000e-03, as C does.
                let text = format!("{v:.4e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
                format!("{digits}e{sign}{exponent:0>2}")
            }
        }
    }
}

/// Brackets, commas and line breaks.
struct Printer<'a> {
    dims: &'a [usize],
    cut: bool,
    width: usize,
}

impl Printer<'_> {
    /// Writes the block of `depth` dims fixed so far, taking its cells in order.
    fn write(&self, f: &mut fmt::Formatter<'_>, cells: &mut impl Iterator<Item = String>, depth: usize) -> fmt::Result {
        let width = self.width;
        let Some(&size) = self.dims.get(depth) else {
            return write!(f, "{}", cells.next().unwrap_or_default());
        };
        let cut = self.cut && size > 2 * EDGE;
        let shown = if cut { 2 * EDGE } else { size };
        let last = depth + 1 == self.dims.len();
        let a_line = (WIDTH.saturating_sub(depth + 1) / (width + 2)).max(1);
        // Entries, and the dots between them, are counted together for line breaks.
        let mut place = 0;
        let separate = |f: &mut fmt::Formatter<'_>, place: &mut usize| {
            let breaks = match (*place, last) {
                (0, _) => return Ok(()),
                (place, true) => usize::from(place % a_line == 0),
                (_, false) => self.dims.len() - depth - 1,
            };
            match breaks {
                0 => f.write_str(", "),
                n => write!(f, ",{}{}", "\n".repeat(n), " ".repeat(depth + 1)),
            }
        };
        f.write_str("[")?;
        for i in 0..shown {
            if cut && i == EDGE {
                separate(f, &mut place)?;
                f.write_str(if last { " ..." } else { "..." })?;
                place += 1;
            }
            separate(f, &mut place)?;
            place += 1;
            if last {
                write!(f, "{:>width$}", cells.next().unwrap_or_default())?;
            } else {
                self.write(f, cells, depth + 1)?;
            }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    fn show(values: Vec<f64>, shape: &[usize]) -> Result<String> {
        Ok(Tensor::from_vec(values, shape, &Device::cpu())?.to_string())
    }

    #[test]
    fn whole_numbers_end_in_a_point_and_line_up() -> Result<()> {
        assert_eq!(
            show(vec![1., 2., 3., -10., 5., f64::NAN], &[2, 3])?,
            "[[  1.,   2.,   3.],\n [-10.,   5.,  nan]]\nTensor[[2, 3], f64, cpu]"
        );
        let ids = Tensor::from_vec(vec![1i64, 20, 300, 4], (2, 1, 2), &Device::cpu())?;
        assert_eq!(ids.to_string(), "[[[  1,  20]],\n\n [[300,   4]]]\nTensor[[2, 1, 2], i64, cpu]");
        Ok(())
    }

    #[test]
    fn fractions_have_four_digits_or_an_exponent() -> Result<()> {
        assert_eq!(show(vec![0.5, -2.25], &[2])?, "[ 0.5000, -2.2500]\nTensor[[2], f64, cpu]");
        assert_eq!(show(vec![1e-5, 1.5], &[2])?, "[1.0000e-05, 1.5000e+00]\nTensor[[2], f64, cpu]");
        assert_eq!(show(vec![0.0, 1e10], &[2])?, "[0.0000e+00, 1.0000e+10]\nTensor[[2], f64, cpu]");
        assert_eq!(show(vec![0.0, f64::NEG_INFINITY], &[2])?, "[  0., -inf]\nTensor[[2], f64, cpu]");
        Ok(())
    }

    #[test]
    fn few_or_no_elements() -> Result<()> {
        assert_eq!(show(vec![3.5], &[])?, "3.5000\nTensor[[], f64, cpu]");
        assert_eq!(show(vec![], &[2, 0])?, "[[],\n []]\nTensor[[2, 0], f64, cpu]");
        assert_eq!(show(vec![], &[0])?, "[]\nTensor[[0], f64, cpu]");
        Ok(())
    }

    #[test]
    fn empty_rows_without_end_are_cut() -> Result<()> {
        for shape in [&[1 << 40, 0][..], &[2, 1 << 20, 1 << 20, 0]] {
            let text = show(vec![], shape)?;
            assert!(text.contains("...") && text.len() < 2000, "{text}");
        }
        Ok(())
    }

    #[test]
    fn long_tensors_are_cut_and_long_lines_broken() -> Result<()> {
        let x = Tensor::arange(0, 1001, 1, DType::I64, &Device::cpu())?;
        assert_eq!(x.to_string(), "[   0,    1,    2,  ...,  998,  999, 1000]\nTensor[[1001], i64, cpu]");
        let table = Tensor::arange(0, 10000, 1, DType::I64, &Device::cpu())?.reshape((100, 100))?;
        let text = table.to_string();
        assert!(text.starts_with("[[   0,    1,    2,  ...,   97,   98,   99],\n [ 100,"), "{text}");
        assert!(text.contains("299],\n ...,\n [9700, "), "{text}");
        let lines = Tensor::arange(0, 40, 1, DType::I64, &Device::cpu())?.to_string();
        assert!(lines.lines().count() == 4 && lines.lines().all(|l| l.len() <= 80), "{lines}");
        Ok(())
    }

    #[test]
    fn a_dry_run_has_no_values() -> Result<()> {
        let x = Tensor::zeros((2, 3), DType::F32, &Device::dry_run("1GiB")?)?;
        assert_eq!(x.to_string(), format!("[no values: dry run]\n{x:?}"));
        Ok(())
    }
}
