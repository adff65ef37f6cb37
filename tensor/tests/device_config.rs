//! A device is set up once, before anything else asks for it. A test program of its own, since devices are the process's.

use kiln_alloc::policies::{Paged, RoundUp};
use kiln_tensor::{DType, Device, DeviceConfig, Error, Result, Tensor};

#[test]
fn the_first_to_ask_sets_a_device_up() -> Result<()> {
    let policy = RoundUp::new(Paged::default(), 1.2);
    let config = DeviceConfig { memory_limit: Some(64 << 20), pinned_limit: Some(1 << 20), ..DeviceConfig::with_policy(policy) };
    assert!(format!("{config:?}").contains("round-up"));
    let device = Device::cpu_with(config)?;
    assert_eq!(device, Device::cpu());
    assert_eq!((Device::cpu().allocator().policy().name(), Device::cpu().memory_stats().limit), ("round-up", Some(64 << 20)));
    assert_eq!(device.pinned_pool().limit(), Some(1 << 20));
    assert!(Tensor::zeros(65 << 20, DType::U8, &device).unwrap_err().is_out_of_memory());
    assert!(matches!(Device::cpu_with(DeviceConfig::default()), Err(Error::Device { .. })));
    Ok(())
}
