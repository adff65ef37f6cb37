//! The table at the end: a row for each setting, for people or as JSON.

use serde_json::json;

/// What came of one setting. Sizes in bytes, times in milliseconds; what a dry run cannot know is `None`.
#[derive(Clone)]
pub struct Row {
    /// Name of the workload.
    pub workload: &'static str,
    /// As in `f16+ckpt`.
    pub mode: String,
    pub device: String,
    /// On the test set, from 0 to 1.
    pub accuracy: Option<f64>,
    /// Of the last epoch or step.
    pub final_loss: Option<f64>,
    /// Median of an optimizer step.
    pub step_ms: Option<f64>,
    pub peak_alloc: usize,
    pub peak_activation: usize,
    pub peak_reserved: usize,
    /// Whether the loss curve equals that of the same setting without checkpoints.
    pub bit_equal: Option<bool>,
}

/// A share in percent; a dry run has none.
pub fn percent(share: Option<f64>) -> String {
    share.map_or("unknown".into(), |x| format!("{:.2} %", 100.0 * x))
}

/// A number; a dry run has none.
pub fn number(number: Option<f64>) -> String {
    number.map_or("unknown".into(), |x| format!("{x:.6}"))
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

impl Row {
    /// One line of JSON, with the fields in the order of the table.
    pub fn json(&self) -> String {
        let round = |x: f64, digits: i32| (x * 10f64.powi(digits)).round() / 10f64.powi(digits);
        let fields = [
            ("workload", json!(self.workload)),
            ("mode", json!(self.mode)),
            ("device", json!(self.device)),
            ("accuracy", json!(self.accuracy.map(|x| round(x, 4)))),
            ("final_loss", json!(self.final_loss)),
            ("step_ms", json!(self.step_ms.map(|x| round(x, 3)))),
            ("peak_alloc_mib", json!(round(mib(self.peak_alloc), 3))),
            ("peak_activation_mib", json!(round(mib(self.peak_activation), 3))),
            ("peak_reserved_mib", json!(round(mib(self.peak_reserved), 3))),
            ("bit_equal", json!(self.bit_equal)),
        ];
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        format!("{{{}}}", fields.join(", "))
    }

    fn cells(&self) -> [String; 7] {
        let size = |bytes: usize| format!("{:.2} MiB", mib(bytes));
        [
            self.mode.clone(),
            size(self.peak_alloc),
            size(self.peak_activation),
            size(self.peak_reserved),
            self.step_ms.map_or("unknown".into(), |x| format!("{x:.2} ms")),
            number(self.final_loss),
            percent(self.accuracy),
        ]
    }
}

/// The rows under their headings.
pub fn text(rows: &[Row]) -> String {
    let mut lines = vec![
        ["mode", "peak allocated", "of it activations", "peak reserved", "step", "final loss", "accuracy"].map(String::from),
    ];
    lines.extend(rows.iter().map(Row::cells));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells: Vec<String> =
            cells.map(|(i, (cell, &w))| if i == 0 { format!("{cell:<w$}") } else { format!("{cell:>w$}") }).collect();
        text += &cells.join("  ");
        text.push('\n');
    }
    text
}

/// Says how a checkpointed row differs from the plain one.
pub fn verdict(plain: &Row, checkpointed: &Row) -> String {
    let less = |plain: usize, checkpointed: usize| 100.0 * (1.0 - checkpointed as f64 / plain.max(1) as f64);
    let activations = less(plain.peak_activation, checkpointed.peak_activation);
    let all = less(plain.peak_alloc, checkpointed.peak_alloc);
    let time = checkpointed.step_ms.zip(plain.step_ms).map(|(a, b)| format!("step time {:+.0} %", 100.0 * (a / b - 1.0)));
    let rest = match (time, checkpointed.bit_equal) {
        (Some(time), Some(true)) => format!("{time}; the loss curves are equal bit for bit"),
        (Some(time), Some(false)) => format!("{time}; THE LOSS CURVES DIFFER"),
        _ => "a dry run has no losses to compare and no time".into(),
    };
    format!(
        "{} against {}: {activations:.1} % less memory for activations, {all:.1} % less in all; {rest}",
        checkpointed.mode, plain.mode
    )
}
