//! NVRTC: CUDA C++ to machine code, through the cache on disk.

use super::{cache, library, source::Source, source::Variant};
use crate::{KernelError, Result};
use cudarc::nvrtc::{result, sys};
use std::ffi::{CString, c_int};

/// Version of NVRTC.
pub(super) fn version() -> Result<(i32, i32)> {
    library::NVRTC.require()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library and the symbol were probed; both numbers outlive the call.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().map_err(|e| failed("nvrtcVersion", e))?;
    Ok((major, minor))
}

/// What NVRTC compiles for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Machine code of the device, as 90.
    Sm(u32),
    /// PTX of an older architecture, for a device newer than NVRTC: the driver finishes the work.
    Compute(u32),
}

impl Target {
    /// The best target for a device of compute capability `capability`.
    pub fn new(capability: (u32, u32)) -> Result<Target> {
        let device = capability.0 * 10 + capability.1;
        let known = supported()?;
        if known.contains(&device) {
            return Ok(Target::Sm(device));
        }
        let older = known.into_iter().filter(|&arch| arch < device).max();
        let text = || {
            format!(
                "NVRTC {:?} does not know a device of compute capability {}.{}: install another",
                version(),
                capability.0,
                capability.1
            )
        };
        older.map(Target::Compute).ok_or_else(|| KernelError::Library(text()))
    }
    fn arch(self) -> u32 {
        let (Target::Sm(arch) | Target::Compute(arch)) = self;
        arch
    }
    fn option(self) -> String {
        match self {
            Target::Sm(arch) => format!("--gpu-architecture=sm_{arch}"),
            Target::Compute(arch) => format!("--gpu-architecture=compute_{arch}"),
        }
    }
}

fn supported() -> Result<Vec<u32>> {
    library::NVRTC.require()?;
    let mut count: c_int = 0;
    // SAFETY: the library and the symbol were probed; `count` outlives the call.
    unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) }.result().map_err(|e| failed("nvrtcGetNumSupportedArchs", e))?;
    let mut archs: Vec<c_int> = vec![0; count.max(0) as usize];
    // SAFETY: `archs` has room for as many numbers as the library just said.
    unsafe { sys::nvrtcGetSupportedArchs(archs.as_mut_ptr()) }.result().map_err(|e| failed("nvrtcGetSupportedArchs", e))?;
    Ok(archs.into_iter().map(|a| a as u32).collect())
}

fn failed(call: &str, e: result::NvrtcError) -> KernelError {
    KernelError::Library(format!("{call} failed: {:?}", e.0))
}

/// Machine code (or PTX with its closing 0) of a variant, from the cache or from NVRTC. `fresh` ignores what the cache has.
pub(super) fn image(source: &Source, variant: Variant, generated: &str, target: Target, fresh: bool) -> Result<Vec<u8>> {
    let text = source.text(variant, generated);
    let mut options = source.options();
    options.push(target.option());
    let key = cache::key(&text, &options, version()?);
    if let Some(image) = (!fresh).then(|| cache::load(key)).flatten() {
        return Ok(image);
    }
    let image = compile(&source.title(variant), &text, &options, target)?;
    cache::store(key, &image);
    Ok(image)
}

/// Destroys an NVRTC program when done with it.
struct Program(sys::nvrtcProgram);
impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was made by `create_program` and is destroyed only here. A failure leaks it, which is harmless.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn compile(name: &str, text: &str, options: &[String], target: Target) -> Result<Vec<u8>> {
    library::NVRTC.require()?;
    let nul = |_| KernelError::Library(format!("the CUDA source {name} has a NUL byte"));
    let (text, title) = (CString::new(text).map_err(nul)?, CString::new(format!("{name}.cu")).map_err(nul)?);
    let program = Program(result::create_program(&text, Some(&title)).map_err(|e| failed("nvrtcCreateProgram", e))?);
    // SAFETY: the program is alive until the end of this function.
    if let Err(e) = unsafe { result::compile_program(program.0, options) } {
        // SAFETY: likewise.
        let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
        let log: Vec<u8> = log.into_iter().map(|c| c as u8).take_while(|&c| c != 0).collect();
        let log = format!("{:?}: {}", e.0, String::from_utf8_lossy(&log));
        return Err(KernelError::Compile { name: name.to_owned(), arch: target.arch(), log });
    }
    let mut size = 0;
    // SAFETY: the program is alive and compiled; `size` outlives the calls, and `image` has the size the library just said.
    unsafe {
        match target {
            Target::Sm(_) => sys::nvrtcGetCUBINSize(program.0, &mut size),
            Target::Compute(_) => sys::nvrtcGetPTXSize(program.0, &mut size),
        }
        .result()
        .map_err(|e| failed("nvrtcGetCUBINSize", e))?;
        let mut image = vec![0u8; size];
        match target {
            Target::Sm(_) => sys::nvrtcGetCUBIN(program.0, image.as_mut_ptr().cast()),
            Target::Compute(_) => sys::nvrtcGetPTX(program.0, image.as_mut_ptr().cast()),
        }
        .result()
        .map_err(|e| failed("nvrtcGetCUBIN", e))?;
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn a_missing_compiler_says_how_to_get_it_and_one_that_is_here_compiles() {
        let source =
            Source { name: "one", texts: &["extern \"C\" __global__ void one(T0* x) { x[0] = cast<T0>(1.0f); }"], fmad: false };
        let wrong = Source { name: "wrong", texts: &["no C++"], fmad: false };
        let compiled = |source: &Source, target: Target| {
            let variant = Variant::types(&[DType::F16]);
            compile(
                &source.title(variant),
                &source.text(variant, ""),
                &[source.options(), vec![target.option()]].concat(),
                target,
            )
        };
        if let Err(missing) = library::NVRTC.require() {
            assert!(missing.to_string().contains("pip install nvidia-cuda-nvrtc"), "{missing}");
            assert!(matches!(compiled(&source, Target::Sm(80)), Err(KernelError::Library(_))));
            return;
        }
        assert!(compiled(&source, Target::Sm(80)).unwrap().starts_with(b"\x7fELF"));
        assert!(compiled(&source, Target::Compute(75)).unwrap().ends_with(b"\0"));
        let error = compiled(&wrong, Target::Sm(80)).unwrap_err();
        assert!(
            matches!(&error, KernelError::Compile { name, arch: 80, log } if name == "wrong_f16_0" && log.contains("error")),
            "{error}"
        );
        assert_eq!(Target::new((8, 0)).unwrap(), Target::Sm(80));
        assert!(matches!(Target::new((99, 0)).unwrap(), Target::Compute(_)));
    }
}
