//! `y = x` on another device; `dx = dy` on the device of `x`.

use crate::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{Device, Error, Result, Tensor, exec};
use kiln_alloc::{download, upload};
use smallvec::smallvec;

struct ToDevice {
    from: Device,
    to: Device,
}

impl Op for ToDevice {
    fn name(&self) -> &'static str {
        "to_device"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let out = exec::empty("to_device", &inputs[0].shape(), inputs[0].dtype(), &self.to)?;
        if self.to.is_dry_run() {
            return Ok(out.into());
        }
        let x = exec::contiguous(&inputs[0])?;
        let (start, bytes) = (x.layout().offset() * x.dtype().size(), x.elem_count() * x.dtype().size());
        let (here, there) = (self.from.stream(), self.to.stream());
        let (source, mut target) = (x.storage().read(&here)?, out.storage().write_new(&there)?);
        if bytes == 0 {
            // An empty tensor may start past the end of its block.
        } else if let Some(host) = source.as_slice() {
            upload(&host[start..start + bytes], &mut target, 0)?;
        } else if let Some(host) = target.as_mut_slice() {
            download(&source, start, &mut host[..bytes])?;
        } else {
            let mut host = vec![0; bytes];
            download(&source, start, &mut host)?;
            upload(&host, &mut target, 0)?;
        }
        drop(target);
        // A copy to the host is a read-back: an index that was out of range in what it reads is told now.
        if source.as_slice().is_none() {
            self.from.check_errors()?;
        }
        Ok(out.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(smallvec![Some(ctx.only(grads)?.to_device(&self.from)?)])
    }
}

impl Tensor {
    /// The same elements on another device; itself where it lies there already. Waits for the copy, unless it goes from the host to a CUDA device
    /// or to a dry run.
    ///
    /// # Errors
    /// From a dry-run device to any other kind of device: it has no values.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let device = Device::cuda_or_cpu(0);
    /// let x = Tensor::from_vec(vec![1f32, 2.0], 2, &Device::cpu())?.to_device(&device)?;
    /// assert_eq!(x.device(), &device);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        if self.device() == device {
            return Ok(self.clone());
        }
        if self.device().is_dry_run() && !device.is_dry_run() {
            return Err(Error::DryRun { op: "to_device" });
        }
        apply(ToDevice { from: self.device().clone(), to: device.clone() }, &[self])
    }
}

#[cfg(test)]
mod tests {
    use crate::{Device, Error, Result, Tensor};

    #[test]
    fn a_dry_run_takes_shapes_and_gives_no_values() -> Result<()> {
        let dry = Device::dry_run("1GiB")?;
        let x = Tensor::from_vec(vec![1f32, 2.0], 2, &Device::cpu())?;
        let y = x.to_device(&dry)?;
        assert_eq!((y.dims(), y.device()), (&[2][..], &dry));
        assert!(matches!(y.to_device(&Device::cpu()), Err(Error::DryRun { op: "to_device" })));
        Ok(())
    }

    #[test]
    fn the_same_device_costs_nothing() -> Result<()> {
        let x = Tensor::from_vec(vec![1f32, 2.0], 2, &Device::cpu())?;
        assert_eq!(x.to_device(&Device::cpu())?.storage().id(), x.storage().id());
        Ok(())
    }
}
