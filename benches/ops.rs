//! Times single ops on square matrices and prints one JSON object a line: `cargo bench --bench ops -- --device cuda:0`.

use clap::Parser;
use kiln::tensor::modes::no_grad;
use kiln::{DType, Device, Error, Result, Tensor};
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// Times single ops on square matrices and prints one JSON object a line.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Where to run: cpu, cuda:N or auto.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Rows and columns [default: 8192 on CUDA, 1024 elsewhere]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65536))]
    size: Option<u32>,
    /// Only the ops with this in their name.
    #[arg(default_value = "")]
    filter: String,
    /// Given by `cargo bench`; means nothing.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Work of an op on an n × n matrix.
enum Work {
    /// So many times the matrix is read or written.
    Matrices(f64),
    /// 2 n³ operations.
    Product,
}

/// What an op reads.
struct Inputs {
    a: Tensor,
    b: Tensor,
    w: Tensor,
}

type Op = (&'static str, Work, fn(&Inputs) -> Result<Tensor>);

const OPS: [Op; 8] = [
    ("add", Work::Matrices(3.0), |i| i.a.add(&i.b)),
    ("gelu", Work::Matrices(2.0), |i| i.a.gelu()),
    ("softmax", Work::Matrices(2.0), |i| i.a.softmax(-1)),
    ("layer_norm", Work::Matrices(2.0), |i| i.a.layer_norm(Some(&i.w), Some(&i.w), 1e-5)),
    ("sum_rows", Work::Matrices(1.0), |i| i.a.sum([-1])),
    ("sum_cols", Work::Matrices(1.0), |i| i.a.sum([0])),
    ("transpose_copy", Work::Matrices(2.0), |i| i.a.t()?.contiguous()),
    ("matmul", Work::Product, |i| i.a.matmul(&i.b)),
];

/// Median milliseconds of a call: groups of calls, each group as long as 50 ms, with the device idle before and after.
fn time(device: &Device, call: impl Fn() -> Result<Tensor>) -> Result<f64> {
    let group = |calls: usize| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..calls {
            drop(call()?);
        }
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / calls as f64)
    };
    group(1)?;
    let calls = (50.0 / group(3)?).clamp(1.0, 1000.0) as usize;
    let mut times = (0..7).map(|_| group(calls)).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[3])
}

fn run(args: &Args) -> Result<()> {
    let device = Device::from_name(&args.device)?;
    let n = args.size.unwrap_or(if device.is_cuda() { 8192 } else { 1024 }) as usize;
    for dtype in [DType::F32, DType::F16] {
        let random = || Tensor::randn((n, n), DType::F32, &device)?.to_dtype(dtype);
        let inputs = Inputs { a: random()?, b: random()?, w: Tensor::ones(n, dtype, &device)? };
        for (name, work, op) in OPS.iter().filter(|(name, ..)| name.contains(&args.filter)) {
            let ms = no_grad(|| time(&device, || op(&inputs)))?;
            let rate = match work {
                Work::Matrices(times) => format!("\"gb_s\": {:.1}", times * (n * n * dtype.size()) as f64 / ms / 1e6),
                Work::Product => format!("\"tflop_s\": {:.3}", 2.0 * (n as f64).powi(3) / ms / 1e9),
            };
            let line = format!("{{\"workload\": \"op\", \"op\": \"{name}\", \"dtype\": \"{dtype}\", \"ms\": {ms:.4}, {rate}}}");
            writeln!(std::io::stdout(), "{line}").map_err(|e| Error::message(format!("stdout: {e}")))?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
