//! Where batches come from.

use super::order;
use kiln_alloc::{PinnedBlock, PinnedPool};
use kiln_tensor::{DType, Device, Element, Error, Result, Shape};
use std::sync::Arc;

/// Samples by index, and how a batch is made of them on the host. Batches are made on several threads at once.
pub trait Dataset: Send + Sync + 'static {
    /// How many samples there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Makes the batch of the samples `request.indices()`: inputs and targets, of whatever shapes.
    fn batch(&self, request: &BatchRequest<'_>) -> Result<(HostTensor, HostTensor)>;
    /// How much these samples count among the micro-batches of one optimizer step: their number, unless the dataset knows better (valid tokens, say). The loss
    /// of a batch is the mean over as many.
    fn weight(&self, indices: &[usize]) -> f64 {
        indices.len() as f64
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    fn len(&self) -> usize {
        (**self).len()
    }
    fn batch(&self, request: &BatchRequest<'_>) -> Result<(HostTensor, HostTensor)> {
        (**self).batch(request)
    }
    fn weight(&self, indices: &[usize]) -> f64 {
        (**self).weight(indices)
    }
}

/// What a batch is asked for, and the memory to make it in.
pub struct BatchRequest<'a> {
    pub(super) indices: &'a [usize],
    pub(super) epoch: u64,
    pub(super) seed: u64,
    pub(super) pool: PinnedPool,
}

impl<'a> BatchRequest<'a> {
    /// A request outside of a loader.
    pub fn new(indices: &'a [usize], seed: u64, epoch: u64, device: &Device) -> BatchRequest<'a> {
        BatchRequest { indices, epoch, seed, pool: device.pinned_pool().clone() }
    }
    /// The samples of the batch, in order.
    pub fn indices(&self) -> &[usize] {
        self.indices
    }
    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
    /// A seed for what is random about sample `index` (augmentation, say): it depends on the loader's seed, the epoch and the index alone.
    pub fn sample_seed(&self, index: usize) -> u64 {
        order::sample_seed(self.seed, self.epoch, index)
    }
    /// Host memory for a tensor, to be filled whole: it may hold what an earlier batch left there.
    ///
    /// # Errors
    /// Where the size overflows, or the host has no memory for it.
    pub fn tensor<T: Element>(&self, shape: impl Into<Shape>) -> Result<HostTensor> {
        let shape = shape.into();
        let bytes = shape.dims().iter().try_fold(T::DTYPE.size(), |n, &d| n.checked_mul(d));
        let bytes = bytes.ok_or_else(|| Error::SizeOverflow { shape: shape.clone(), dtype: T::DTYPE })?;
        Ok(HostTensor { block: self.pool.allocate(bytes)?, shape, dtype: T::DTYPE })
    }
    /// A tensor with these elements, row-major.
    ///
    /// # Errors
    /// Where there are more or fewer than the shape has, and as [`BatchRequest::tensor`].
    pub fn tensor_from<T: Element>(&self, elements: &[T], shape: impl Into<Shape>) -> Result<HostTensor> {
        let mut tensor = self.tensor::<T>(shape)?;
        let message = format!("shape {} does not have {} elements", tensor.shape, elements.len());
        let slice = tensor.as_mut_slice::<T>()?;
        if slice.len() != elements.len() {
            return Err(Error::shape("batch", message));
        }
        slice.copy_from_slice(elements);
        Ok(tensor)
    }
}

/// Elements in page-locked host memory, on their way to a device.
pub struct HostTensor {
    pub(super) block: PinnedBlock,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
}

impl HostTensor {
    /// The elements, row-major, for filling.
    ///
    /// # Errors
    /// Where `T` is not the element type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        if T::DTYPE != self.dtype {
            return Err(Error::dtype("batch", format!("elements are {}, not {}", self.dtype, T::DTYPE)));
        }
        Ok(bytemuck::cast_slice_mut(self.block.as_mut_slice()?))
    }
    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
}

/// Samples that lie in host memory: inputs and targets with the sample as their first dim.
///
/// ```
/// # use kiln_nn::{DataLoader, TensorDataset};
/// let dataset = TensorDataset::new(vec![0f32; 10 * 3], (10, 3), vec![0i64; 10], 10)?;
/// for batch in DataLoader::new(dataset).batch_size(4).epoch(0) {
///     let (x, y) = batch?;
///     assert_eq!(x.dims()[1], 3);
///     assert_eq!(x.dims()[0], y.dims()[0]);
/// }
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
pub struct TensorDataset<X, Y> {
    x: Column<X>,
    y: Column<Y>,
}

struct Column<T> {
    data: Vec<T>,
    dims: Vec<usize>,
}

impl<T: Element> Column<T> {
    fn new(data: Vec<T>, shape: Shape) -> Result<Column<T>> {
        let elements = shape.dims().iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if shape.rank() == 0 || elements != Some(data.len()) {
            return Err(Error::shape(
                "dataset",
                format!("{} elements do not fit shape {shape}, whose first dim counts samples", data.len()),
            ));
        }
        Ok(Column { data, dims: shape.dims().to_vec() })
    }
    fn rows(&self, request: &BatchRequest<'_>) -> Result<HostTensor> {
        let width: usize = self.dims[1..].iter().product();
        let mut out = request.tensor::<T>([&[request.indices().len()], &self.dims[1..]].concat())?;
        let slice = out.as_mut_slice::<T>()?;
        if width > 0 {
            for (row, &i) in slice.chunks_exact_mut(width).zip(request.indices()) {
                row.copy_from_slice(&self.data[i * width..(i + 1) * width]);
            }
        }
        Ok(out)
    }
}

impl<X: Element, Y: Element> TensorDataset<X, Y> {
    /// Samples from their elements, row-major.
    ///
    /// # Errors
    /// Where elements do not fit a shape, or the first dims differ.
    pub fn new(x: Vec<X>, x_shape: impl Into<Shape>, y: Vec<Y>, y_shape: impl Into<Shape>) -> Result<TensorDataset<X, Y>> {
        let (x, y) = (Column::new(x, x_shape.into())?, Column::new(y, y_shape.into())?);
        if x.dims[0] != y.dims[0] {
            return Err(Error::shape("dataset", format!("{} inputs were given with {} targets", x.dims[0], y.dims[0])));
        }
        Ok(TensorDataset { x, y })
    }
}

impl<X: Element, Y: Element> Dataset for TensorDataset<X, Y> {
    fn len(&self) -> usize {
        self.x.dims[0]
    }
    fn batch(&self, request: &BatchRequest<'_>) -> Result<(HostTensor, HostTensor)> {
        Ok((self.x.rows(request)?, self.y.rows(request)?))
    }
}
