//! Compiled functions by name of source, variant and entry, and launching them.

use super::{Cuda, compile, source::Source, source::Variant};
use crate::{KernelError, Result};
use cudarc::driver::sys;
use kiln_alloc::{AllocError, SourceError, Stream};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError, RwLock};

/// A compiled kernel, valid as long as its [`Cuda`].
#[derive(Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);
// SAFETY: a function handle is a number for the driver, usable on any thread whose current context it belongs to.
unsafe impl Send for Function {}
// SAFETY: likewise.
unsafe impl Sync for Function {}

struct Module(sys::CUmodule);
// SAFETY: a module handle is a number for the driver, usable on any thread.
unsafe impl Send for Module {}

type ModuleKey = (usize, Variant);
type FunctionKey = (ModuleKey, usize, usize);

/// What has been compiled and loaded so far.
#[derive(Default)]
pub(super) struct Functions {
    functions: RwLock<HashMap<FunctionKey, Function>>,
    /// Held while compiling, so that no variant is compiled twice at once.
    modules: Mutex<HashMap<ModuleKey, Module>>,
}

impl Drop for Functions {
    fn drop(&mut self) {
        for module in self.modules.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            // SAFETY: the module was loaded by us and is unloaded once. The driver waits for its kernels; a failure (a dead context) leaks.
            let _ = unsafe { sys::cuModuleUnload(module.0) };
        }
    }
}

/// How many threads a launch has: a grid of blocks of `block` threads, each block with `shared` bytes of dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub grid: [u32; 3],
    pub block: u32,
    pub shared: u32,
}

impl Launch {
    /// Enough blocks of `block` threads for one thread each of `threads` (at most 2^31 - 1 blocks; kernels that may see more loop).
    pub fn threads(threads: usize, block: u32) -> Launch {
        Launch::blocks(threads.div_ceil(block as usize), block)
    }
    /// That many blocks.
    pub fn blocks(blocks: usize, block: u32) -> Launch {
        Launch { grid: [blocks.min(i32::MAX as usize) as u32, 1, 1], block, shared: 0 }
    }
}

/// A value that kernels take as an argument: plain bytes with the same layout in Rust and CUDA C++.
///
/// # Safety
/// The type is `Copy`, without pointers to host memory, and laid out as its C++ twin.
pub(crate) unsafe trait Value: Copy {}
// SAFETY: numbers are the same on both sides.
unsafe impl Value for u64 {}
// SAFETY: likewise.
unsafe impl Value for i64 {}
// SAFETY: likewise.
unsafe impl Value for u32 {}
// SAFETY: likewise.
unsafe impl Value for i32 {}
// SAFETY: likewise.
unsafe impl Value for f32 {}
// SAFETY: likewise.
unsafe impl Value for f64 {}

/// A borrowed kernel argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Param<'a>(*const c_void, PhantomData<&'a ()>);

/// A kernel argument: an address (u64), a number, or a struct by value.
pub(crate) fn param<T: Value>(value: &T) -> Param<'_> {
    Param((value as *const T).cast(), PhantomData)
}

/// A driver call's status as an error. (cudarc's own `Display` may panic, and so is not used.)
pub(crate) fn driver_error(call: &'static str, code: sys::CUresult) -> KernelError {
    let source = match code {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => SourceError::OutOfMemory,
        _ => SourceError::Driver { call, code: code as u32, message: format!("{code:?}") },
    };
    KernelError::Alloc(AllocError::Source(source))
}

/// Waits for all work of the current context; a failure was told, or will be, by another call.
pub(super) fn synchronize() {
    // SAFETY: makes no demands on the caller.
    let _ = unsafe { sys::cuCtxSynchronize() };
}

impl Cuda {
    /// The kernel `entry` of a variant, compiled on first use.
    pub(crate) fn function(&self, source: &'static Source, variant: Variant, entry: &'static str) -> Result<Function> {
        self.generated(source, variant, entry, String::new)
    }

    /// The kernel `entry` of a variant whose text is the source's followed by `text()`; `variant` tells texts apart.
    pub(crate) fn generated(
        &self,
        source: &'static Source,
        variant: Variant,
        entry: &'static str,
        text: impl FnOnce() -> String,
    ) -> Result<Function> {
        // Statics and literals are told apart by address: no text is hashed on the way to a launch.
        let module_key = (std::ptr::from_ref(source) as usize, variant);
        let key = (module_key, entry.as_ptr() as usize, entry.len());
        if let Some(&f) = self.functions.functions.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(f);
        }
        self.bind()?;
        let mut modules = self.functions.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match modules.entry(module_key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.load(source, variant, &text())?),
        };
        let name = CString::new(entry).map_err(|_| KernelError::Library(format!("a kernel cannot be named {entry:?}")))?;
        let mut f = std::ptr::null_mut();
        // SAFETY: the module is loaded and stays so as long as `self`; the name ends with NUL.
        match unsafe { sys::cuModuleGetFunction(&mut f, module.0, name.as_ptr()) } {
            sys::CUresult::CUDA_SUCCESS => {}
            code => return Err(driver_error("cuModuleGetFunction", code)),
        }
        self.functions.functions.write().unwrap_or_else(PoisonError::into_inner).insert(key, Function(f));
        Ok(Function(f))
    }

    fn load(&self, source: &Source, variant: Variant, generated: &str) -> Result<Module> {
        let mut status = sys::CUresult::CUDA_SUCCESS;
        // An image of the cache that the driver refuses is compiled anew.
        for fresh in [false, true] {
            let image = compile::image(source, variant, generated, self.target, fresh)?;
            let mut module = std::ptr::null_mut();
            // SAFETY: the image is a whole cubin, or PTX that ends with NUL; the driver copies what it needs.
            status = unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) };
            if status == sys::CUresult::CUDA_SUCCESS {
                return Ok(Module(module));
            }
        }
        Err(driver_error("cuModuleLoadData", status))
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// `params` match the kernel's parameters in number, order and type, and every address in them comes from a token that is alive
    /// and allows what the kernel does.
    pub(crate) unsafe fn launch(&self, function: Function, launch: Launch, stream: &Stream, params: &[Param<'_>]) -> Result<()> {
        self.bind()?;
        let [x, y, z] = launch.grid;
        // SAFETY: the caller's promise; the driver copies the arguments before it returns and does not write to the array of pointers.
        let status = unsafe {
            sys::cuLaunchKernel(
                function.0,
                x,
                y,
                z,
                launch.block,
                1,
                1,
                launch.shared,
                stream.raw().0 as sys::CUstream,
                params.as_ptr().cast_mut().cast(),
                std::ptr::null_mut(),
            )
        };
        match status {
            sys::CUresult::CUDA_SUCCESS => Ok(()),
            code => Err(driver_error("cuLaunchKernel", code)),
        }
    }

    /// Enqueues a copy of bytes within the device.
    ///
    /// # Safety
    /// Both addresses come from tokens that are alive, of blocks that have the bytes; the ranges do not overlap.
    pub(crate) unsafe fn copy_bytes(&self, out: u64, x: u64, bytes: usize, stream: &Stream) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's promise.
        match unsafe { sys::cuMemcpyDtoDAsync_v2(out, x, bytes, stream.raw().0 as sys::CUstream) } {
            sys::CUresult::CUDA_SUCCESS => Ok(()),
            code => Err(driver_error("cuMemcpyDtoDAsync", code)),
        }
    }
}
