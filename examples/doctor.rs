//! Says what Kiln found on this machine, what is missing, and how to get it.
//!
//! `cargo run --example doctor`; with `--json` for programs.

use clap::Parser;
use kiln::DeviceConfig;
use kiln::alloc::driver::{self, DeviceInfo};
use kiln::kernels::cuda::{LibraryInfo, libraries};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Says what Kiln found on this machine, what is missing, and how to get it.
///
/// Exits with 0 on a machine that is ready for CUDA and on one with no GPU, where Kiln runs on the CPU; with 1 where there is a GPU that
/// Kiln cannot use.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What was found.
struct Findings {
    /// The driver's version, or why there is none to use.
    driver: Result<(u32, u32), String>,
    /// Each device, or why it does not answer.
    devices: Vec<Result<DeviceInfo, String>>,
    libraries: Vec<LibraryInfo>,
}

/// What it comes to.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Cuda,
    CpuOnly,
    BrokenCuda,
}

impl Findings {
    fn gather() -> Findings {
        let driver = driver::probe().and_then(|()| driver::version()).map_err(|e| e.to_string());
        let count = if driver.is_ok() { driver::device_count().unwrap_or(0) } else { 0 };
        let devices = (0..count).map(|ordinal| driver::device_info(ordinal).map_err(|e| e.to_string())).collect();
        Findings { driver, devices, libraries: libraries() }
    }

    fn verdict(&self) -> Verdict {
        if self.devices.is_empty() {
            Verdict::CpuOnly
        } else if self.libraries.iter().all(|l| l.found) && self.devices.iter().any(|d| d.is_ok()) {
            Verdict::Cuda
        } else {
            Verdict::BrokenCuda
        }
    }

    fn print(&self) {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        println!(
            "Kiln {} on {} {}, {threads} CPU threads\n",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH
        );
        match &self.driver {
            Ok((major, minor)) => println!("CUDA driver  for CUDA {major}.{minor}"),
            Err(reason) => println!("CUDA driver  not usable: {reason}"),
        }
        for (ordinal, device) in self.devices.iter().enumerate() {
            match device {
                Ok(d) => println!("cuda:{ordinal:<8}{}", describe(d)),
                Err(reason) => println!("cuda:{ordinal:<8}does not answer: {reason}"),
            }
        }
        for library in &self.libraries {
            let name = library.name;
            if library.found {
                let version = library.version.as_deref().unwrap_or("of unknown version");
                println!("{name:<12} {version} ({})", library.path.as_deref().unwrap_or("path unknown"));
            } else {
                println!("{name:<12} missing: {}", library.how_to_get);
            }
        }
        println!("{:<12} {}", "memory", policy());
        println!("\n{}", self.verdict().sentence());
    }

    fn to_json(&self) -> Value {
        let devices = self.devices.iter().enumerate().map(|(ordinal, device)| match device {
            Ok(d) => json!({
                "ordinal": ordinal,
                "name": d.name,
                "capability": format!("{}.{}", d.capability.0, d.capability.1),
                "memory_bytes": d.total_memory,
                "multiprocessors": d.multiprocessors,
                "virtual_memory": d.virtual_memory,
            }),
            Err(reason) => json!({ "ordinal": ordinal, "error": reason }),
        });
        let libraries = self.libraries.iter().map(|l| {
            let how_to_get = (!l.found).then_some(l.how_to_get);
            json!({ "name": l.name, "found": l.found, "version": l.version, "path": l.path, "how_to_get": how_to_get })
        });
        json!({
            "kiln": env!("CARGO_PKG_VERSION"),
            "driver": match &self.driver {
                Ok((major, minor)) => json!({ "found": true, "cuda": format!("{major}.{minor}") }),
                Err(reason) => json!({ "found": false, "reason": reason }),
            },
            "devices": devices.collect::<Vec<_>>(),
            "memory_policy": DeviceConfig::default().policy.name(),
            "libraries": libraries.collect::<Vec<_>>(),
            "verdict": self.verdict().word(),
        })
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Cuda => "cuda",
            Verdict::CpuOnly => "cpu",
            Verdict::BrokenCuda => "broken-cuda",
        }
    }
    fn sentence(self) -> &'static str {
        match self {
            Verdict::Cuda => "Ready for CUDA.",
            Verdict::CpuOnly => "CPU only: there is no GPU to use, and everything runs on the CPU.",
            Verdict::BrokenCuda => {
                "There is a GPU, but Kiln cannot use it before what is missing above is there; until then it runs on the CPU."
            }
        }
    }
}

/// How Kiln hands memory out on this machine.
fn policy() -> String {
    format!("the policy of a new device is {:?} (`Device::cuda_with` sets another)", DeviceConfig::default().policy.name())
}

fn describe(d: &DeviceInfo) -> String {
    let gib = d.total_memory as f64 / (1u64 << 30) as f64;
    let (major, minor) = d.capability;
    let memory = if d.virtual_memory { "virtual memory" } else { "cuMemAlloc (no virtual memory)" };
    format!("{}, compute capability {major}.{minor}, {gib:.1} GiB, {} multiprocessors, {memory}", d.name, d.multiprocessors)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let findings = Findings::gather();
    if args.json {
        println!("{:#}", findings.to_json());
    } else {
        findings.print();
    }
    if findings.verdict() == Verdict::BrokenCuda { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
