//! Conversions between the backend's tensors and slices.

use std::borrow::Cow;

use burn::backend::flex::{Flex, FlexTensor, Layout};
use burn::backend::{DType, TensorMetadata};
use burn::tensor::{Bytes, Shape, Tensor};
use tra_kernels::attention::Rows;

/// Returns the numbers of a tensor in the order of its shape; copied only if they are in another.
pub(crate) fn numbers(tensor: &FlexTensor) -> Cow<'_, [f32]> {
    match tensor.as_slice::<f32>() {
        Some(slice) => Cow::Borrowed(slice),
        None => {
            let tensor = tensor.to_contiguous();
            match tensor.as_slice::<f32>() {
                Some(slice) => Cow::Owned(slice.to_vec()),
                None => panic!("a tensor of {:?} cannot be read as f32", tensor.dtype()),
            }
        }
    }
}

/// Returns the backend's own tensor.
///
/// # Panics
/// Unless it is an untracked tensor of the CPU backend.
pub(crate) fn primitive<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    match tensor.try_into_primitive::<Flex>() {
        Ok(primitive) => primitive,
        Err(error) => panic!("not a tensor of the CPU backend: {error:?}"),
    }
}

/// Makes a tensor of these numbers.
pub(crate) fn tensor(numbers: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(numbers), Layout::contiguous(shape.into()), DType::F32)
}

/// Returns a buffer `[batch, rows, heads, width]` as a tensor `[batch, heads, rows, width]`.
pub(crate) fn by_token(numbers: Vec<f32>, shape: [usize; 4]) -> FlexTensor {
    let [batch, heads, rows, width] = shape;
    tensor(numbers, [batch, rows, heads, width]).transpose(1, 2)
}

/// Returns the sizes of a tensor of `D` dimensions.
pub(crate) fn dims<const D: usize>(tensor: &FlexTensor) -> [usize; D] {
    tensor.shape().dims()
}

/// A tensor `[batch, heads, rows, width]` with contiguous rows.
pub(crate) struct RowTensor {
    tensor: FlexTensor,
}

impl RowTensor {
    pub(crate) fn new(tensor: &FlexTensor) -> Self {
        let strides = tensor.layout().strides();
        let in_one_piece = strides[3] == 1 || dims::<4>(tensor)[3] == 1;
        let usable = in_one_piece && strides.iter().all(|s| *s >= 0);
        Self { tensor: if usable { tensor.clone() } else { tensor.to_contiguous() } }
    }

    pub(crate) fn rows(&self) -> Rows<'_> {
        let [batch, heads, rows, width] = dims(&self.tensor);
        let strides = self.tensor.layout().strides();
        let stride = |d: usize| match usize::try_from(strides[d]) {
            Ok(stride) => stride,
            Err(_) => unreachable!("`new` copies what lies backwards"),
        };
        let start = self.tensor.layout().start_offset();
        let data = self.tensor.storage::<f32>();
        Rows::new(data, start, [batch, heads, rows], [stride(0), stride(1), stride(2)], width)
    }
}
