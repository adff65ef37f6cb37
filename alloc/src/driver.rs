//! The CUDA driver: what is there, and thin calls that never panic.
//!
//! cudarc opens the driver's library and each of its symbols at the first call and panics where one is missing. So nothing here
//! or in the CUDA source calls it before [`probe`] has found the library and every symbol they use.

use crate::SourceError;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, OnceLock, PoisonError};

type Result<T> = std::result::Result<T, SourceError>;

/// A CUDA device as the driver describes it.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its number.
    pub ordinal: usize,
    /// As in "NVIDIA H200".
    pub name: String,
    /// Compute capability, as (9, 0).
    pub capability: (u32, u32),
    /// All bytes of the device.
    pub total_memory: usize,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Whether virtual memory management is supported.
    pub virtual_memory: bool,
}

/// Every symbol that this crate calls, and what kernels need to be loaded and launched. What only a rare option needs is looked
/// up by [`require`] when that is asked for.
const NEEDED: [&str; 45] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuPointerGetAttributes",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// Whether a usable CUDA driver with at least one device is here; says why not. Probed once.
pub fn probe() -> Result<()> {
    static STATE: OnceLock<Result<()>> = OnceLock::new();
    STATE.get_or_init(look).clone()
}

fn look() -> Result<()> {
    let none = |why: &str| Err(SourceError::NoCuda(why.to_string()));
    // SAFETY: opening the driver's library runs only its own initialisers.
    if !unsafe { sys::is_culib_present() } {
        return none(
            "no CUDA driver was found (libcuda.so.1): install NVIDIA's driver, and in a container start it with GPU access \
             (`--gpus all`)",
        );
    }
    NEEDED.into_iter().try_for_each(find)?;
    // SAFETY: initialising the driver has no precondition.
    if let Err(error) = check("cuInit", unsafe { sys::cuInit(0) }) {
        return match error {
            SourceError::Driver { code: 100, .. } => none("the CUDA driver sees no device"),
            error => none(&format!("the CUDA driver does not start: {error}; a reboot helps after a driver update")),
        };
    }
    match count() {
        Ok(0) => none("the CUDA driver sees no device: look at CUDA_VISIBLE_DEVICES and `nvidia-smi`"),
        Ok(_) => Ok(()),
        Err(error) => none(&format!("the CUDA driver cannot count its devices: {error}")),
    }
}

/// Whether the driver has a symbol; its library must have been found.
fn find(name: &str) -> Result<()> {
    // SAFETY: the library was found, so this cannot panic.
    let library = unsafe { sys::culib() };
    // SAFETY: the symbol is only looked up, never called through this type.
    match unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) } {
        Ok(_) => Ok(()),
        Err(_) => {
            let why = format!("the CUDA driver is too old: it has no `{name}`; install a driver of CUDA 12 or newer");
            Err(SourceError::NoCuda(why))
        }
    }
}

/// Looks up a symbol that is not among those every use needs. Its first call panics where it is missing.
fn require(name: &str) -> Result<()> {
    probe()?;
    find(name)
}

/// The result of a driver call as ours, with the driver's words.
pub(crate) fn check(call: &'static str, result: sys::CUresult) -> Result<()> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(SourceError::OutOfMemory),
        other => Err(SourceError::Driver { call, code: other as u32, message: words(other) }),
    }
}

/// As in "CUDA_ERROR_INVALID_VALUE: invalid argument".
fn words(result: sys::CUresult) -> String {
    let text = |get: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: both functions write a pointer to a static string, or null.
        let found = unsafe { get(result, &mut text) } == sys::CUresult::CUDA_SUCCESS && !text.is_null();
        // SAFETY: not null, so it is such a string.
        found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    match (text(sys::cuGetErrorName), text(sys::cuGetErrorString)) {
        (Some(name), Some(what)) => format!("{name}: {what}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "a code the driver does not know".into(),
    }
}

/// The driver's version, as (13, 0).
///
/// # Errors
/// `NoCuda` where [`probe`] fails; what the driver says. So do all calls below.
pub fn version() -> Result<(u32, u32)> {
    probe()?;
    let mut version: c_int = 0;
    // SAFETY: the out pointer is valid.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    Ok((version as u32 / 1000, version as u32 % 1000 / 10))
}

/// How many devices there are.
pub fn device_count() -> Result<usize> {
    probe()?;
    count()
}

fn count() -> Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: the out pointer is valid, and the driver is initialised.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok(count.max(0) as usize)
}

fn device(ordinal: usize) -> Result<sys::CUdevice> {
    let count = device_count()?;
    if ordinal >= count {
        return Err(SourceError::NoCuda(format!("there is no CUDA device {ordinal}: the driver sees {count}")));
    }
    let mut device: sys::CUdevice = 0;
    // SAFETY: the out pointer is valid.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) })?;
    Ok(device)
}

fn attribute(device: sys::CUdevice, which: Attribute) -> Result<u32> {
    let mut value: c_int = 0;
    // SAFETY: the out pointer is valid and the device came from the driver.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })?;
    Ok(value.max(0) as u32)
}

/// Whether physical memory of a device can be exported as POSIX file descriptors.
pub(crate) fn exports_handles(ordinal: usize) -> Result<bool> {
    Ok(attribute(device(ordinal)?, Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)? != 0)
}

/// Whether device `from` can read and write memory of device `to` directly.
pub(crate) fn can_access(from: usize, to: usize) -> Result<bool> {
    require("cuDeviceCanAccessPeer")?;
    let mut can: c_int = 0;
    // SAFETY: the out pointer is valid and both devices came from the driver.
    check("cuDeviceCanAccessPeer", unsafe { sys::cuDeviceCanAccessPeer(&mut can, device(from)?, device(to)?) })?;
    Ok(can != 0)
}

/// Facts about a device.
pub fn device_info(ordinal: usize) -> Result<DeviceInfo> {
    let device = device(ordinal)?;
    let attribute = |which| attribute(device, which);
    let mut name = [0 as c_char; 256];
    // SAFETY: the buffer has the length that is passed; the driver ends the name with a zero.
    check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device) })?;
    let name = name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect::<Vec<u8>>();
    let mut total_memory = 0;
    // SAFETY: the out pointer is valid.
    check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut total_memory, device) })?;
    Ok(DeviceInfo {
        ordinal,
        name: String::from_utf8_lossy(&name).into_owned(),
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        total_memory,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        virtual_memory: attribute(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0,
    })
}

/// A device's primary context, held for the life of the process, which all libraries of the process share.
#[derive(Clone, Copy)]
pub(crate) struct Context(sys::CUcontext);

// SAFETY: a context is a handle that the driver lets every thread use.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of a device.
    pub(crate) fn of(ordinal: usize) -> Result<Context> {
        static CONTEXTS: Mutex<BTreeMap<usize, Context>> = Mutex::new(BTreeMap::new());
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = contexts.get(&ordinal) {
            return Ok(*context);
        }
        let device = device(ordinal)?;
        let mut raw: sys::CUcontext = std::ptr::null_mut();
        // SAFETY: the out pointer is valid and the device came from the driver.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) })?;
        contexts.insert(ordinal, Context(raw));
        Ok(Context(raw))
    }

    /// Makes it current on this thread. Asks first, since other libraries change the current context too.
    pub(crate) fn bind(self) -> Result<()> {
        let mut current: sys::CUcontext = std::ptr::null_mut();
        // SAFETY: the out pointer is valid.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut current) })?;
        if current == self.0 {
            return Ok(());
        }
        // SAFETY: the context is retained and never released.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.0) })
    }
}

/// Makes the device's primary context current on this thread. Kernels call it before launching.
pub fn bind(ordinal: usize) -> Result<()> {
    thread_local! {
        /// The last context bound here, to spare the map.
        static LAST: std::cell::Cell<Option<(usize, Context)>> = const { std::cell::Cell::new(None) };
    }
    let context = match LAST.get() {
        Some((last, context)) if last == ordinal => context,
        _ => {
            let context = Context::of(ordinal)?;
            LAST.set(Some((ordinal, context)));
            context
        }
    };
    context.bind()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_an_error_that_says_what_to_do() {
        match probe() {
            Ok(()) => assert!(device_count().unwrap() > 0),
            Err(SourceError::NoCuda(why)) => {
                assert!(why.contains("driver"), "{why}");
                assert!(bind(0).is_err() && version().is_err() && device_info(0).is_err());
            }
            Err(other) => panic!("{other}"),
        }
    }
}
