"""Repositories of fake models: they answer their input after a declared time."""

from pathlib import Path

ROW = (3, 4, 4)
"""Shape of the rows of a `mirror`."""

_ECHO = """
backend: "fake"
max_batch_size: {max_batch_size}
input [ {{ name: "x" data_type: {data_type} dims: [ 2 ] }} ]
output [ {{ name: "y" data_type: {data_type} dims: [ 2 ] }} ]
parameters {{ key: "service_base_us" value: {{ string_value: "{base_us}" }} }}
{more}
"""
_MIRROR = """
backend: "fake"
max_batch_size: 8
input [ {{ name: "image" data_type: TYPE_FP32 dims: [ 3, 4, 4 ] }} ]
output [ {{ name: "levels" data_type: TYPE_FP32 dims: [ 3, 4, 4 ] }} ]
parameters {{ key: "service_base_us" value: {{ string_value: "{base_us}" }} }}
"""
_MIRROR_SIDE = """
[batching]
max_queue_requests = {max_queue_requests}
[preprocessing]
resize = 4
crop = 4
exif = "{exif}"
mean = [0.0, 0.0, 0.0]
std = [255.0, 255.0, 255.0]
output = "probabilities"
"""


def add_echo(
    root: Path,
    name: str,
    *,
    max_batch_size: int = 32,
    base_us: int = 0,
    data_type: str = "TYPE_FP32",
    more: str = "",
    batching: str = "",
) -> Path:
    """A model from `x` of two elements to the same `y`; `batching` is the body of that table in shoal.toml."""
    config = _ECHO.format(max_batch_size=max_batch_size, base_us=base_us, data_type=data_type, more=more)
    return _write(root, name, config, f"[batching]\n{batching}\n" if batching else "")


def add_mirror(root: Path, name: str, *, base_us: int = 0, max_queue_requests: int = 1024, exif: str = "apply") -> Path:
    """A classifier whose probabilities are the levels of the decoded image, so that they show what was decoded."""
    side = _MIRROR_SIDE.format(max_queue_requests=max_queue_requests, exif=exif)
    return _write(root, name, _MIRROR.format(base_us=base_us), side)


def _write(root: Path, name: str, config: str, side: str) -> Path:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)
    if side:
        (root / name / "shoal.toml").write_text(side)
    return root
