//! The libraries opened at run time: whether they are here, and how to get them where they are not.

use crate::{KernelError, Result};
use std::sync::OnceLock;

/// What is known of a library that is opened at run time.
#[derive(Clone, Debug)]
pub struct LibraryInfo {
    /// As in "NVRTC".
    pub name: &'static str,
    /// Whether it can be opened.
    pub found: bool,
    /// Its version, as "13.0".
    pub version: Option<String>,
    /// The file it was opened from.
    pub path: Option<String>,
    /// How to install it.
    pub how_to_get: &'static str,
}

/// A library and what this crate calls in it.
pub(crate) struct Library {
    name: &'static str,
    file: &'static str,
    how_to_get: &'static str,
    symbols: &'static [&'static str],
    present: fn() -> bool,
    has_symbol: fn(&str) -> bool,
    state: OnceLock<Result<()>>,
}

macro_rules! library {
    ($static:ident, $module:ident, $name:literal, $file:literal, $how:literal, [$($symbol:literal),*]) => {
        #[doc = concat!("Probe of ", $name, ".")]
        pub(crate) static $static: Library = Library {
            name: $name,
            file: $file,
            how_to_get: $how,
            symbols: &[$($symbol),*],
            // SAFETY: opening the library runs its initialisers, which make no demands on the caller.
            present: || unsafe { cudarc::$module::sys::is_culib_present() },
            // SAFETY: the symbol is only looked up, never called through this type; called after `present`, so `culib` does not panic.
            has_symbol: |s| unsafe { cudarc::$module::sys::culib().get::<unsafe extern "C" fn()>(s.as_bytes()).is_ok() },
            state: OnceLock::new(),
        };
    };
}

library!(
    NVRTC,
    nvrtc,
    "NVRTC",
    "libnvrtc.so",
    "install the CUDA 13 NVRTC library, for instance `pip install nvidia-cuda-nvrtc`, and put its folder on LD_LIBRARY_PATH",
    [
        "nvrtcVersion",
        "nvrtcGetNumSupportedArchs",
        "nvrtcGetSupportedArchs",
        "nvrtcCreateProgram",
        "nvrtcCompileProgram",
        "nvrtcDestroyProgram",
        "nvrtcGetProgramLogSize",
        "nvrtcGetProgramLog",
        "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN",
        "nvrtcGetPTXSize",
        "nvrtcGetPTX"
    ]
);
library!(
    CUBLAS,
    cublas,
    "cuBLAS",
    "libcublas.so",
    "install the CUDA 13 cuBLAS library, for instance `pip install nvidia-cublas`, and put its folder on LD_LIBRARY_PATH",
    [
        "cublasGetProperty",
        "cublasCreate_v2",
        "cublasDestroy_v2",
        "cublasSetStream_v2",
        "cublasSetWorkspace_v2",
        "cublasSetMathMode",
        "cublasGemmEx_64",
        "cublasGemmStridedBatchedEx_64",
        "cublasScalEx_64"
    ]
);
library!(
    DRIVER,
    driver,
    "the CUDA driver",
    "libcuda.so",
    "install the NVIDIA driver",
    ["cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuLaunchKernel", "cuCtxSynchronize", "cuMemcpyDtoDAsync_v2"]
);

impl Library {
    /// Says what is missing, once probed, at no cost. After `Ok`, calls into the library do not panic.
    pub(crate) fn require(&'static self) -> Result<()> {
        self.state.get_or_init(|| self.probe()).clone()
    }
    fn probe(&self) -> Result<()> {
        if !(self.present)() {
            return Err(KernelError::Library(format!("{} was not found: {}", self.file, self.how_to_get)));
        }
        match self.symbols.iter().find(|s| !(self.has_symbol)(s)) {
            Some(missing) => {
                Err(KernelError::Library(format!("{} has no {missing}, it is too old: {}", self.file, self.how_to_get)))
            }
            None => Ok(()),
        }
    }
    fn info(&'static self, version: impl FnOnce() -> Option<String>) -> LibraryInfo {
        let found = self.require().is_ok();
        let path = found.then(|| mapped_file(self.file)).flatten();
        LibraryInfo { name: self.name, found, version: found.then(version).flatten(), path, how_to_get: self.how_to_get }
    }
}

/// NVRTC and cuBLAS as found on this machine, for a program that tells a user what is missing.
pub fn libraries() -> Vec<LibraryInfo> {
    vec![
        NVRTC.info(|| super::compile::version().ok().map(|(major, minor)| format!("{major}.{minor}"))),
        CUBLAS.info(cublas_version),
    ]
}

fn cublas_version() -> Option<String> {
    use cudarc::cublas::sys::{cublasGetProperty, libraryPropertyType::*};
    let part = |property| {
        let mut value = 0;
        // SAFETY: the library and the symbol were probed; `value` outlives the call.
        unsafe { cublasGetProperty(property, &mut value) }.result().ok().map(|()| value.to_string())
    };
    Some([part(MAJOR_VERSION)?, part(MINOR_VERSION)?, part(PATCH_LEVEL)?].join("."))
}

/// The file that an opened library is mapped from, as the kernel tells.
fn mapped_file(name: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.rsplit('/').next().is_some_and(|f| f.starts_with(name)))?;
    Some(line[line.find('/')?..].to_owned())
}
