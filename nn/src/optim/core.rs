//! What optimizers share: their parameters, state tensors made when first needed, and clocks.
//!
//! A clock is a block `[learning rate, steps done]` on the device, shared by the parameters that were stepped equally often. Usually there is one; a
//! parameter that gets its first gradient later has a later clock, so its bias correction is right. Kernels read both numbers from there, so a step needs no
//! word from the host.

use super::OptimizerId;
use crate::Parameter;
use kiln_alloc::Category;
use kiln_kernels::optim::{Advance, HYPER, SCALER};
use kiln_kernels::{Arg, OutArg};
use kiln_tensor::{DType, Error, Result, Tensor, modes};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::panic::Location;

pub(super) struct Core {
    pub(super) id: OptimizerId,
    pub(super) name: &'static str,
    pub(super) params: Vec<Parameter>,
    pub(super) lr: f64,
    /// What is kept for each parameter, as `exp_avg`.
    parts: &'static [&'static str],
    slots: Vec<Option<Slot>>,
    clocks: BTreeMap<usize, Tensor>,
    next_clock: usize,
    /// The line that made the optimizer: its state is reported there.
    site: &'static Location<'static>,
}

/// What is kept for one parameter.
#[derive(Clone)]
struct Slot {
    clock: usize,
    parts: Vec<Tensor>,
}

/// What the kernel of one parameter gets.
pub(super) struct Work<'a> {
    pub(super) param: &'a Parameter,
    pub(super) grad: Tensor,
    pub(super) parts: &'a [Tensor],
    pub(super) clock: &'a Tensor,
}

/// Makes optimizer state of the optimizer made at `site`: counted as such, without history.
fn as_state<R>(site: &'static Location<'static>, f: impl FnOnce() -> R) -> R {
    let (category, site) = (Category::OptimizerState, Some(site));
    let plain = |m: &mut modes::Modes| {
        *m = modes::Modes { grad: false, category, site, streams: m.streams.clone(), ..Default::default() };
    };
    modes::scope(plain, f)
}

impl Core {
    #[track_caller]
    pub(super) fn new(name: &'static str, params: Vec<Parameter>, lr: f64, parts: &'static [&'static str]) -> Result<Core> {
        check_lr(name, lr)?;
        let mut seen = HashSet::new();
        if let Some(twice) = params.iter().find(|p| !seen.insert(p.storage().id())) {
            return Err(Error::argument(name, format!("parameter {} is listed twice", twice.name())));
        }
        if let Some(other) = params.iter().find(|p| p.device() != params[0].device()) {
            let (first, message) = (&params[0], "an optimizer works on one device; take one for each");
            let message =
                format!("{message}: {} lies on {}, {} on {}", first.name(), first.device(), other.name(), other.device());
            return Err(Error::Device { op: name, message });
        }
        let slots = params.iter().map(|_| None).collect();
        let site = Location::caller();
        Ok(Core { id: OptimizerId::new(), name, params, lr, parts, slots, clocks: BTreeMap::new(), next_clock: 0, site })
    }

    pub(super) fn set_lr(&mut self, lr: f64) -> Result<()> {
        check_lr(self.name, lr)?;
        for clock in self.clocks.values() {
            let stream = clock.device().stream();
            kiln_alloc::upload(bytemuck::bytes_of(&lr), &mut clock.storage().write(&stream, "set_lr")?, 0)?;
        }
        self.lr = lr;
        Ok(())
    }

    /// One step: gradients are checked and state is made before anything changes; then clocks advance and `update` runs for each parameter.
    pub(super) fn step(&mut self, scaler: Option<&Tensor>, mut update: impl FnMut(Work<'_>) -> Result<()>) -> Result<()> {
        let grads = self.gradients()?;
        as_state(self.site, || self.prepare(&grads))?;
        let stepped: HashSet<usize> = grads.iter().filter_map(|(i, _)| self.slots[*i].as_ref()).map(|slot| slot.clock).collect();
        for clock in self.clocks.iter().filter(|(id, _)| stepped.contains(id)).map(|(_, clock)| clock) {
            advance(clock, scaler)?;
        }
        for (i, grad) in grads {
            if let Some(slot) = &self.slots[i] {
                update(Work { param: &self.params[i], grad, parts: &slot.parts, clock: &self.clocks[&slot.clock] })?;
            }
        }
        Ok(())
    }

    /// The gradients there are, contiguous, with the indices of their parameters.
    fn gradients(&self) -> Result<Vec<(usize, Tensor)>> {
        let mut grads = Vec::new();
        for (i, param) in self.params.iter().enumerate() {
            if let Some(grad) = param.grad()? {
                grads.push((i, modes::no_grad(|| grad.contiguous())?));
            }
        }
        Ok(grads)
    }

    /// Makes the state of parameters that have their first gradient, and splits a clock some of whose parameters have none.
    fn prepare(&mut self, grads: &[(usize, Tensor)]) -> Result<()> {
        let has_grad: HashSet<usize> = grads.iter().map(|(i, _)| *i).collect();
        let clocks = |wanted: bool| -> BTreeSet<usize> {
            self.slots
                .iter()
                .enumerate()
                .filter(|(i, _)| has_grad.contains(i) == wanted)
                .filter_map(|(_, s)| Some(s.as_ref()?.clock))
                .collect()
        };
        let mut moves = BTreeMap::new();
        for &split in clocks(true).intersection(&clocks(false)) {
            let copy = self.clocks[&split].copy()?;
            moves.insert(split, self.add_clock(copy));
        }
        let mut fresh = None;
        for &(i, _) in grads {
            match &mut self.slots[i] {
                Some(slot) => slot.clock = moves.get(&slot.clock).copied().unwrap_or(slot.clock),
                None => {
                    let parts = self.parts.iter().map(|_| zeros_for(&self.params[i])).collect::<Result<_>>()?;
                    let clock = match fresh {
                        Some(clock) => clock,
                        None => self.add_clock(Tensor::from_slice(&[self.lr, 0.0], HYPER, self.params[i].device())?),
                    };
                    fresh = Some(clock);
                    self.slots[i] = Some(Slot { clock, parts });
                }
            }
        }
        if self.clocks.len() > 1 {
            let used: HashSet<usize> = self.slots.iter().flatten().map(|slot| slot.clock).collect();
            self.clocks.retain(|clock, _| used.contains(clock));
        }
        Ok(())
    }

    fn add_clock(&mut self, clock: Tensor) -> usize {
        self.clocks.insert(self.next_clock, clock);
        self.next_clock += 1;
        self.next_clock - 1
    }

    pub(super) fn state_dict(&self) -> Result<Vec<(String, Tensor)>> {
        let Some(first) = self.params.first() else { return Ok(Vec::new()) };
        modes::no_grad(|| {
            let mut state = vec![("lr".to_owned(), Tensor::scalar(self.lr, first.device())?)];
            for (param, slot) in self.params.iter().zip(&self.slots) {
                let Some(slot) = slot else { continue };
                for (part, tensor) in self.parts.iter().zip(&slot.parts) {
                    state.push((format!("{}.{part}", param.name()), tensor.copy()?));
                }
                state.push((format!("{}.step", param.name()), self.clocks[&slot.clock].narrow(0, 1, 1)?.copy()?));
            }
            Ok(state)
        })
    }

    pub(super) fn load_state_dict(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        let mut given: HashMap<&str, &Tensor> = state.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let lr = match given.remove("lr") {
            Some(lr) => lr.to_scalar::<f64>()?,
            None => self.lr,
        };
        check_lr(self.name, lr)?;
        let mut loaded = Core { params: self.params.clone(), lr, slots: Vec::new(), clocks: BTreeMap::new(), ..*self };
        // Parameters stepped equally often share a clock.
        let mut by_steps: BTreeMap<u64, usize> = BTreeMap::new();
        for param in &self.params {
            let Some(steps) = given.remove(format!("{}.step", param.name()).as_str()) else {
                loaded.slots.push(None);
                continue;
            };
            let steps = steps.to_scalar::<f64>()?;
            if !(steps >= 0.0 && steps.is_finite() && steps.fract() == 0.0) {
                return Err(Error::argument(
                    self.name,
                    format!("{}.step is {steps} in the state, which is no number of steps", param.name()),
                ));
            }
            let parts = self.parts.iter().map(|part| self.part(param, part, &mut given)).collect::<Result<_>>()?;
            let clock = match by_steps.get(&steps.to_bits()) {
                Some(clock) => *clock,
                None => loaded.add_clock(as_state(self.site, || Tensor::from_slice(&[lr, steps], HYPER, param.device()))?),
            };
            by_steps.insert(steps.to_bits(), clock);
            loaded.slots.push(Some(Slot { clock, parts }));
        }
        if let Some(unknown) = given.keys().min() {
            return Err(Error::argument(self.name, format!("{unknown} in the state belongs to no parameter of this optimizer")));
        }
        *self = loaded;
        Ok(())
    }

    /// A copy of one state tensor that was given, on the device of its parameter.
    fn part(&self, param: &Parameter, part: &str, given: &mut HashMap<&str, &Tensor>) -> Result<Tensor> {
        let name = format!("{}.{part}", param.name());
        let tensor = given.remove(name.as_str()).ok_or_else(|| Error::argument(self.name, format!("the state lacks {name}")))?;
        if tensor.dims() != param.dims() || tensor.dtype() != state_type(param) {
            let (dtype, shape) = (state_type(param), param.shape());
            return Err(Error::argument(
                self.name,
                format!("{name} is {tensor:?} in the state, where {dtype} of shape {shape} is expected"),
            ));
        }
        as_state(self.site, || {
            if tensor.device() == param.device() { tensor.detach().copy() } else { tensor.detach().to_device(param.device()) }
        })
    }
}

fn check_lr(name: &'static str, lr: f64) -> Result<()> {
    if lr.is_finite() && lr >= 0.0 {
        Ok(())
    } else {
        Err(Error::argument(name, format!("learning rate {lr} is not finite and at least 0")))
    }
}

/// State is kept in f32, in f64 for f64 parameters.
fn state_type(param: &Parameter) -> DType {
    param.dtype().accumulator()
}

fn zeros_for(param: &Parameter) -> Result<Tensor> {
    Tensor::zeros(param.shape(), state_type(param), param.device())
}

/// Counts a step on a clock.
fn advance(clock: &Tensor, scaler: Option<&Tensor>) -> Result<()> {
    let stream = clock.device().stream();
    let read = scaler.map(|s| s.storage().read(&stream)).transpose()?;
    let mut token = clock.storage().write(&stream, "step")?;
    let hyper = OutArg::new(&mut token, DType::F64, clock.layout());
    clock.device().run(Advance { hyper, scaler: scaler_arg(scaler, read.as_ref()) }, &stream)
}

/// The operand for a scaler's block, whose token is `read`.
pub(super) fn scaler_arg<'a>(scaler: Option<&'a Tensor>, read: Option<&'a kiln_alloc::Read<'a>>) -> Option<Arg<'a>> {
    scaler.zip(read).map(|(scaler, read)| {
        debug_assert_eq!(scaler.elem_count(), SCALER);
        Arg::new(read, DType::F32, scaler.layout())
    })
}
