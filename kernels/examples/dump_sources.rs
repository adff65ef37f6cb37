//! Writes every CUDA source of the crate into a folder, each with its compiler options, one a line: `NAME.cu` and `NAME.opts`.
//!
//! `cargo run -p kiln-kernels --example dump_sources -- FOLDER`

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: dump_sources FOLDER");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&folder)?;
    let sources = kiln_kernels::cuda::all_sources();
    for (name, text, options) in &sources {
        std::fs::write(folder.join(format!("{name}.cu")), text)?;
        std::fs::write(folder.join(format!("{name}.opts")), options.join("\n"))?;
    }
    println!("{} sources in {}", sources.len(), folder.display());
    Ok(())
}
