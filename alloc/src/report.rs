//! Reports for people: the memory table, and where every byte was when memory ran out.

use crate::size::human;
use crate::{Category, CategoryStats, MemoryInfo, MemoryStats, OomReport, SourceInfo};
use std::fmt;

const WIDTH: usize = 64;

/// A table of the counters, metric × (current, peak), as PyTorch's users know it.
pub(crate) fn summary(info: &SourceInfo, stats: &MemoryStats, memory: Option<MemoryInfo>) -> String {
    let rule = |c: &str| format!("|{}|\n", c.repeat(WIDTH - 2));
    let line = |name: &str, current: String, peak: String| format!("| {name:<28} | {current:>13} | {peak:>13} |\n");
    let row = |name: &str, s: CategoryStats| line(name, human(s.current), human(s.peak));
    let one = |name: &str, value: String| line(name, value, String::new());
    let mut out = rule("=");
    out += &format!("| {:<w$} |\n", format!("memory of {} ({})", info.name, human(info.capacity)), w = WIDTH - 4);
    out += &rule("-");
    out += &line("metric", "current".into(), "peak".into());
    out += &rule("-");
    out += &row("allocated", stats.allocated);
    for category in Category::ALL {
        out += &row(&format!("  {}", category.name()), stats.category(category));
    }
    out += &row("requested", stats.requested);
    out += &row("reserved", stats.reserved);
    out += &rule("-");
    out += &one("pending", human(stats.pending));
    out += &one("largest idle block", human(stats.largest_free));
    out += &one("limit", stats.limit.map_or("none".into(), human));
    if let Some(memory) = memory {
        let used = memory.total.saturating_sub(memory.free);
        out += &one("used outside kiln", human(used.saturating_sub(stats.reserved.current)));
        out += &one("free on the device", human(memory.free));
    }
    out += &rule("-");
    out += &one("live blocks", stats.live_blocks.to_string());
    out += &one("allocations", stats.allocations.to_string());
    out += &one("driver calls", stats.driver_calls.to_string());
    out += &one("cache emptied to serve", stats.retries.to_string());
    out += &one("out of memory", stats.ooms.to_string());
    out += &rule("=");
    out
}

impl fmt::Display for OomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} is out of memory: {} more were asked for", self.device, human(self.requested))?;
        let idle = self.reserved.saturating_sub(self.allocated).saturating_sub(self.pending);
        writeln!(f, "  live            {:>12}", human(self.allocated))?;
        for (category, bytes) in &self.categories {
            writeln!(f, "    {:<15} {:>10}", category.name(), human(*bytes))?;
        }
        writeln!(f, "  reserved        {:>12}", human(self.reserved))?;
        writeln!(f, "  idle            {:>12}, the largest block {}", human(idle), human(self.largest_free))?;
        writeln!(f, "  pending         {:>12}", human(self.pending))?;
        writeln!(f, "  limit           {:>12}", self.limit.map_or("none".into(), human))?;
        writeln!(f, "  free on device  {:>12} of {}", human(self.driver_free), human(self.driver_total))?;
        write!(f, "  tried           {}", self.steps.join("\n                  "))
    }
}
