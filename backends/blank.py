"""Made-up inputs, for runs before the first caller comes."""

import numpy as np

from models.inference import Tensors
from models.spec import ModelSpec
from models.tensors import DataType


def variable_inputs(spec: ModelSpec) -> list[str]:
    """Names of inputs with variable dims, for which nothing can be made up: no size is sure to fit."""
    return [declared.name for declared in spec.inputs if declared.has_variable_dims]


def blank_inputs(spec: ModelSpec, rows: int) -> Tensors:
    """Zeros, and empty strings, of the declared shapes; all dims have to be fixed."""
    leading = (rows,) if spec.has_batch_dimension else ()
    return {
        declared.name: np.full(
            (*leading, *declared.dims), b"" if declared.data_type is DataType.BYTES else 0, declared.data_type.numpy
        )
        for declared in spec.inputs
    }
