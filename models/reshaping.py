"""``reshape`` of a tensor: a client's shape of a row, and the shape that the model has for the same elements.

The rule is Triton's: both have as many elements, and where there are variable dimensions, both have them in the same
order with as many elements between them.
"""

import math
from collections.abc import Sequence

Dims = Sequence[int]


def can_reshape(dims: Dims, shape: Dims) -> bool:
    """Whether rows of `dims` can always be rows of `shape`; -1 is a variable dimension."""
    return _volumes(dims) == _volumes(shape)


def reshaped(row: Dims, dims: Dims, shape: Dims) -> tuple[int, ...]:
    """The shape of one row of `dims`, declared variable or not, as a row of `shape`.

    Args:
        row: The row's own shape.
        dims: Its declaration.
        shape: The declaration to follow.
    """
    variable = iter([size for size, declared in zip(row, dims, strict=True) if declared < 0])
    return tuple(next(variable) if size < 0 else size for size in shape)


def _volumes(dims: Dims) -> list[int]:
    """Elements before, between and after the variable dimensions."""
    volumes: list[list[int]] = [[]]
    for size in dims:
        if size < 0:
            volumes.append([])
        else:
            volumes[-1].append(size)
    return [math.prod(sizes) for sizes in volumes]
