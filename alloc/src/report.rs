//! Reports for people: the memory table, in the rows and columns of PyTorch's, and where every byte was when memory ran out.

use crate::core::Core;
use crate::size::human;
use crate::{Category, MemoryStats, OomReport, PoolStats, SourceInfo, SourceKind, Stat};
use std::fmt;

const WIDTH: usize = 88;
const NAME: usize = 24;

/// How a number is shown.
type Show = fn(u64) -> String;

fn bytes(value: u64) -> String {
    human(value as usize)
}
fn count(value: u64) -> String {
    value.to_string()
}

/// A table under construction.
struct Table(String);

impl Table {
    fn rule(&mut self, c: &str) {
        self.0 += &format!("|{}|\n", c.repeat(WIDTH - 2));
    }
    fn title(&mut self, text: &str) {
        self.0 += &format!("| {text:^w$} |\n", w = WIDTH - 4);
    }
    fn line(&mut self, name: &str, columns: [String; 4]) {
        let [a, b, c, d] = columns;
        self.0 += &format!("| {name:<NAME$} | {a:>12} | {b:>12} | {c:>12} | {d:>12} |\n");
    }
    fn stat(&mut self, name: &str, stat: Stat, show: Show) {
        self.line(name, [stat.current, stat.peak, stat.allocated, stat.freed].map(show));
    }
    fn two(&mut self, name: &str, current: String, peak: String) {
        self.line(name, [current, peak, String::new(), String::new()]);
    }
    fn one(&mut self, name: &str, value: String) {
        self.two(name, value, String::new());
    }
    fn metric(&mut self, name: &str, stats: &PoolStats, show: Show, abbreviated: bool) {
        self.stat(name, stats.all, show);
        if !abbreviated {
            self.stat("      from large pool", stats.large_pool, show);
            self.stat("      from small pool", stats.small_pool, show);
            self.rule("-");
        }
    }
}

/// A table of the counters, as PyTorch's users know it: metrics × (current, peak, total allocated, total freed), each followed by
/// its pools unless `abbreviated`; then what only this allocator counts.
pub(crate) fn summary(core: &Core, stats: &MemoryStats, abbreviated: bool) -> String {
    let (info, memory) = (&core.info, core.source.memory_info().ok());
    let mut table = Table(String::new());
    table.rule("=");
    table.title(&format!("kiln memory summary, {} ({})", info.name, human(info.capacity)));
    table.title(&format!("{}; policy {}", info.memory(), core.policy.name()));
    table.rule("-");
    let (ooms, retries) = (format!("OOMs: {}", stats.ooms), format!("retries with an emptied cache: {}", stats.retries));
    table.0 += &format!("|{ooms:^w$}|{retries:^w$} |\n", w = WIDTH / 2 - 2);
    metrics(&mut table, info, stats, abbreviated);
    categories(&mut table, stats);
    table.rule("=");
    table.one("Pending memory", human(stats.pending));
    table.one("Largest idle block", human(stats.largest_free));
    table.one("Whole idle pages", human(stats.free_pages));
    table.one("Limit", stats.limit.map_or("none".into(), human));
    if let Some(memory) = memory {
        let used = memory.total.saturating_sub(memory.free);
        table.one("Used outside kiln", human(used.saturating_sub(stats.reserved.current)));
        table.one("Free on the device", human(memory.free));
    }
    table.rule("-");
    table.one("1 - largest / idle", format!("{:.1} %", 100.0 * stats.fragmentation()));
    table.one("Reserved / allocated", ratio(stats.reserved_to_live()));
    table.two("Reserved / requested", String::new(), ratio(stats.peak_ratio()));
    table.rule("-");
    table.one("Stitches", count(stats.stitches));
    table.one("Stitched memory", bytes(stats.stitched_bytes));
    table.one("Steals", count(stats.steals));
    table.one("Driver calls", count(stats.driver_calls));
    table.rule("=");
    table.0
}

fn metrics(table: &mut Table, info: &SourceInfo, stats: &MemoryStats, abbreviated: bool) {
    let (reserved, segments, oversize) = match info.kind {
        SourceKind::Cuda => ("GPU reserved memory", "GPU reserved segments", "Oversize GPU segments"),
        SourceKind::Host | SourceKind::Simulated => ("Reserved memory", "Reserved segments", "Oversize segments"),
    };
    table.rule("=");
    table.line("Metric", ["Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed"].map(String::from));
    table.rule("-");
    table.metric("Allocated memory", &stats.allocated_bytes, bytes, abbreviated);
    table.metric("Active memory", &stats.active_bytes, bytes, abbreviated);
    table.metric("Requested memory", &stats.requested_bytes, bytes, abbreviated);
    table.metric(reserved, &stats.reserved_bytes, bytes, abbreviated);
    table.metric("Non-releasable memory", &stats.inactive_split_bytes, bytes, abbreviated);
    table.metric("Allocations", &stats.allocation, count, abbreviated);
    table.metric("Active allocs", &stats.active, count, abbreviated);
    table.metric(segments, &stats.segment, count, abbreviated);
    table.metric("Non-releasable allocs", &stats.inactive_split, count, abbreviated);
    table.stat("Oversize allocations", stats.oversize_allocations, count);
    table.stat(oversize, stats.oversize_segments, count);
}

fn categories(table: &mut Table, stats: &MemoryStats) {
    table.rule("=");
    table.two("Allocated as", "Cur Usage".into(), "Peak Usage".into());
    table.rule("-");
    for category in Category::ALL {
        let row = stats.category(category);
        table.two(category.name(), human(row.current), human(row.peak));
    }
}

fn ratio(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { "-".into() }
}

impl OomReport {
    /// Whether the request would fit, but the pages that it takes do not.
    fn fails_by_pages(&self, page: usize) -> bool {
        let most = self.limit.unwrap_or(usize::MAX).min(self.driver_total);
        let pages = self.size.checked_next_multiple_of(page).unwrap_or(usize::MAX);
        let fails = |taken: usize| taken.saturating_add(self.size) <= most && taken.saturating_add(pages) > most;
        most < page || fails(0) || fails(self.reserved)
    }
}

impl fmt::Display for OomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requested, size) = (human(self.requested), human(self.size));
        let block = if requested == size { String::new() } else { format!(" ({size} as a block)") };
        writeln!(f, "{} is out of memory: {requested}{block} more were asked for at {}", self.device, self.site)?;
        writeln!(f, "  live            {:>12}", human(self.allocated))?;
        for (category, bytes) in &self.categories {
            writeln!(f, "    {:<15} {:>10}", category.name(), human(*bytes))?;
        }
        if !self.top_sites.is_empty() {
            writeln!(f, "  live, by line")?;
        }
        for (site, bytes) in &self.top_sites {
            writeln!(f, "    {:>26}  {site}", human(*bytes))?;
        }
        if self.rounded_up > 0 {
            writeln!(f, "  rounded up      {:>12}", human(self.rounded_up))?;
        }
        writeln!(f, "  reserved        {:>12}", human(self.reserved))?;
        writeln!(f, "  idle            {:>12}, the largest range {}", human(self.idle), human(self.largest_free))?;
        writeln!(f, "    whole pages   {:>12}", human(self.free_pages))?;
        writeln!(f, "  pending         {:>12}", human(self.pending))?;
        for (stream, bytes) in &self.pending_by_stream {
            writeln!(f, "    {:<15} {:>10}", format!("stream {}", stream.0), human(*bytes))?;
        }
        writeln!(f, "  limit           {:>12}", self.limit.map_or("none".into(), human))?;
        writeln!(f, "  free on device  {:>12} of {}", human(self.driver_free), human(self.driver_total))?;
        if let Some(page) = self.page.filter(|page| self.fails_by_pages(*page)) {
            writeln!(f, "  pages           memory comes in pages of {}", human(page))?;
        }
        write!(f, "  tried           {}", self.steps.join("\n                  "))
    }
}
