//! What a program can ask about the memory of a device, and how it steers it.

use crate::memory::Limit;
use crate::support::{cases, read};
use kiln::alloc::policies::{Bump, RoundUp, Torch};
use kiln::{Category, DType, Device, DeviceConfig, Error, Result, Tensor, autocast};

cases![
    caches_are_given_up_before_a_request_fails,
    scratch_memory_of_products_makes_way,
    an_emptied_cache_drops_casts_of_weights,
    memory_is_reserved_ahead_and_trimmed,
    statistics_bear_the_names_of_pytorch,
    totals_start_anew_and_peaks_follow,
    a_limit_is_a_fraction_of_the_device,
    the_page_locked_pool_is_counted,
    a_device_in_use_is_not_set_up_again,
    policies_are_compared_on_dry_runs,
];

const MIB: usize = 1 << 20;

/// A weight of 16 MiB with a cast of 8 MiB that nobody but the cache holds.
fn cast_weight(d: &Device) -> Result<Tensor> {
    let w = Tensor::ones((2048, 2048), DType::F32, d)?.requires_grad()?;
    autocast(DType::BF16, || Tensor::ones((1, 2048), DType::F32, d)?.matmul(&w))?;
    Ok(w)
}

fn caches_are_given_up_before_a_request_fails(d: &Device) -> Result<()> {
    let w = cast_weight(d)?;
    let before = d.memory_allocated();
    let _limit = {
        // Without `empty_cache`, which would drop the cast.
        d.allocator().empty_cache()?;
        d.set_memory_limit(Some(d.memory_reserved() + 4 * MIB));
        Limit::until_dropped(d)
    };
    let x = Tensor::zeros(8 * MIB, DType::U8, d)?;
    assert!(d.memory_allocated() <= before, "the cast made way");
    drop(x);
    // It is made anew when it is wanted, and the weight is as it was.
    d.set_memory_limit(None);
    let y = autocast(DType::BF16, || Tensor::ones((1, 2048), DType::F32, d)?.matmul(&w))?;
    assert_eq!(read(&y)?, vec![2048.0; 2048]);
    Ok(())
}

fn scratch_memory_of_products_makes_way(_: &Device) -> Result<()> {
    let d = Device::dry_run("64MiB")?;
    let x = Tensor::zeros((16, 16), DType::F32, &d)?;
    let held = |d: &Device| d.memory_stats().category(Category::Workspace).current;
    x.matmul(&x)?;
    assert!(held(&d) > 32 * MIB);
    let large = Tensor::zeros(40 * MIB, DType::U8, &d)?;
    assert!(held(&d) < MIB, "idle scratch memory was given up");
    // The product that wants its scratch memory back asks for caches itself, while it holds their lock.
    assert!(x.matmul(&x).unwrap_err().is_out_of_memory());
    drop(large);
    x.matmul(&x)?;
    Ok(())
}

fn an_emptied_cache_drops_casts_of_weights(d: &Device) -> Result<()> {
    let w = cast_weight(d)?;
    d.empty_cache()?;
    let outside = d.memory_stats().allocated_outside_workspace();
    drop(w);
    assert_eq!(outside - d.memory_stats().allocated_outside_workspace(), 16 * MIB);
    Ok(())
}

fn memory_is_reserved_ahead_and_trimmed(d: &Device) -> Result<()> {
    d.empty_cache()?;
    let before = d.memory_reserved();
    d.reserve(64 * MIB)?;
    assert!(d.memory_reserved() >= before + 64 * MIB);
    let calls = d.memory_stats().driver_calls;
    let x = Tensor::zeros(48 * MIB, DType::U8, d)?;
    assert_eq!(d.memory_stats().driver_calls, calls, "served from what was reserved");
    drop(x);
    d.trim(before + 16 * MIB)?;
    let kept = d.memory_reserved();
    assert!(kept <= before + 16 * MIB && kept > before, "{kept} of {before}");
    d.trim(0)?;
    assert_eq!(d.memory_reserved(), before);
    let (limit, most) = (Limit::above_now(d, 8 * MIB)?, d.memory_reserved() + 8 * MIB);
    assert!(d.reserve(64 * MIB).unwrap_err().is_out_of_memory());
    assert!(d.memory_reserved() <= most);
    drop(limit);
    Ok(())
}

fn statistics_bear_the_names_of_pytorch(d: &Device) -> Result<()> {
    let x = Tensor::zeros(3 * MIB, DType::U8, d)?;
    let (typed, map) = (d.memory_stats(), d.memory_stats_map());
    assert_eq!(map["allocated_bytes.all.current"], typed.allocated.current as u64);
    assert_eq!(map["reserved_bytes.all.peak"], typed.reserved.peak as u64);
    assert!(map["requested_bytes.large_pool.current"] >= 3 * MIB as u64);
    assert!(map.contains_key("num_alloc_retries") && map.contains_key("category_bytes.activations.peak"));
    assert_eq!((d.memory_allocated(), d.max_memory_allocated()), (typed.allocated.current, typed.allocated.peak));
    assert_eq!((d.memory_reserved(), d.max_memory_reserved()), (typed.reserved.current, typed.reserved.peak));
    let (long, short) = (d.memory_summary(), d.memory_summary_abbreviated());
    assert!(long.contains("from large pool") && !short.contains("from large pool") && short.contains("Allocated memory"));
    let info = d.memory_info()?;
    assert!(info.free <= info.total && info.total > 0);
    drop(x);
    Ok(())
}

fn totals_start_anew_and_peaks_follow(d: &Device) -> Result<()> {
    d.reset_accumulated_memory_stats();
    d.reset_peak_memory_stats();
    let now = d.memory_allocated();
    drop(Tensor::zeros(2 * MIB, DType::U8, d)?);
    let stats = d.memory_stats();
    assert_eq!(stats.allocated_bytes.all.allocated, 2 * MIB as u64);
    assert_eq!(stats.allocated_bytes.all.freed, 2 * MIB as u64);
    assert_eq!(d.max_memory_allocated(), now + 2 * MIB);
    d.reset_peak_memory_stats();
    assert_eq!(d.max_memory_allocated(), now);
    Ok(())
}

fn a_limit_is_a_fraction_of_the_device(d: &Device) -> Result<()> {
    let _limit = Limit::until_dropped(d);
    d.set_memory_limit_fraction(0.5)?;
    let half = d.memory_stats().limit.unwrap();
    d.set_memory_limit_fraction(1.0)?;
    assert!(d.memory_stats().limit.unwrap().abs_diff(2 * half) <= 1);
    for wrong in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(d.set_memory_limit_fraction(wrong), Err(Error::Argument { .. })));
    }
    Ok(())
}

fn the_page_locked_pool_is_counted(d: &Device) -> Result<()> {
    d.reset_peak_host_memory_stats();
    let before = d.host_memory_stats();
    let block = d.pinned_pool().allocate(MIB)?;
    let during = d.host_memory_stats();
    assert_eq!(during.active_bytes.current, before.active_bytes.current + MIB as u64);
    drop(block);
    assert_eq!(d.host_memory_stats().active_bytes.current, before.active_bytes.current);
    assert_eq!(d.host_memory_stats().active_bytes.peak, during.active_bytes.current);
    Ok(())
}

fn a_device_in_use_is_not_set_up_again(d: &Device) -> Result<()> {
    let again = match d.is_cpu() {
        true => Device::cpu_with(DeviceConfig::with_policy(Torch)),
        false => Device::cuda_with(0, DeviceConfig::with_policy(Torch)),
    };
    let e = again.unwrap_err();
    assert!(matches!(e, Error::Device { .. }) && e.to_string().contains("paged") && e.to_string().contains(d.name()), "{e}");
    assert_eq!(d.allocator().policy().name(), "paged");
    Ok(())
}

/// What a program takes from a device with a policy: blocks that grow, then one of all their bytes.
fn peak_reserved(config: DeviceConfig) -> Result<f64> {
    let d = Device::dry_run_with("80GiB", config)?;
    for mib in [40, 60, 80] {
        let parts: Vec<_> = (0..8).map(|_| Tensor::zeros(mib * MIB, DType::U8, &d)).collect::<Result<_>>()?;
        drop(parts);
    }
    let stats = d.memory_stats();
    Ok(stats.peak_ratio())
}

fn policies_are_compared_on_dry_runs(_: &Device) -> Result<()> {
    let paged = peak_reserved(DeviceConfig::default())?;
    let torch = peak_reserved(DeviceConfig::with_policy(Torch))?;
    let bump = peak_reserved(DeviceConfig::with_policy(Bump))?;
    let round_up = peak_reserved(DeviceConfig::with_policy(RoundUp::new(Bump, 1.2)))?;
    assert!(paged <= 1.03 && bump <= 1.03 && round_up > 1.15 && torch > 2.0, "{paged} {torch} {bump} {round_up}");
    let d = Device::dry_run_with("1GiB", DeviceConfig { memory_limit: Some(64 * MIB), ..Default::default() })?;
    assert!(Tensor::zeros(65 * MIB, DType::U8, &d).unwrap_err().is_out_of_memory());
    Ok(())
}
