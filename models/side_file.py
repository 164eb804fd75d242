"""shoal.toml, the side file of a model: what Triton's config cannot say. Other servers ignore it.

::

    labels = "labels.txt"            # one label a line; wins over label_filename in config.pbtxt
    required = true                  # the server is not ready without it; false: ready whatever it does

    [version_labels]                 # names for versions
    stable = 1

    [output]
    name = "logits"                  # the labelled output; needed when the model has several

    [batching]
    policy = "torchserve"            # or another profile; docs/policies.md
    faithful = false                 # the original's lateness with timeouts
    deadlines = true                 # a request's timeout is for its whole answer
    max_queue_requests = 1024
    max_queue_rows = 4096
    oversize = "split"               # or "refuse"
    allowed_batch_sizes = [1, 2, 4, 8]

    [batching.parameters]            # of the policy, under their original names
    batch_size = 8
    max_batch_delay_ms = 5

    [execution]
    host = "process"                 # or "thread"; otherwise what fits the backend
    step_timeout_s = 30.0            # a batch that runs for longer ends its worker process
    load_timeout_s = 600.0           # likewise for loading and warming up
    max_restarts = 5                 # of a worker within a minute; -1: no limit
    non_finite = "retry_fp32"        # or "off", "count", "fail": what to do about NaN and infinite numbers in answers

    [preprocessing]                  # see models.preprocessing
    resize = 256
    crop = 224

    [golden]                         # optional: what `shoal golden` has written is compared anyway
    tolerance_levels = 2.0           # of the mean of each cell of a row
    tolerance_probability = 0.05     # of each class
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from models.config_lines import ConfigLines
from models.errors import ConfigError
from models.preprocessing import Preprocessing
from models.problems import Problems
from models.side_file_errors import impossible, not_toml
from models.side_file_lines import line_by_field
from models.spec import BatchingSpec, ExecutionSpec, Host, NonFinite, Oversize
from models.tensors import DataType, TensorSpec
from models.text_files import file_inside, read_labels

_Label = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9._-]{0,63}$")]  # no number, which would be a version
_Count = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
_ROW_TYPES = {"float32": DataType.FP32, "uint8": DataType.UINT8}


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BatchingTable(_Table):
    """``[batching]``: each value given here replaces the one that config.pbtxt leads to."""

    policy: Annotated[str, Field(min_length=1)] | None = None
    faithful: bool = False
    deadlines: bool | None = None
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    max_queue_requests: _Count | None = None
    max_queue_rows: _Count | None = None
    oversize: Literal["refuse", "split"] | None = None
    allowed_batch_sizes: tuple[_Count, ...] = ()


class OutputTable(_Table):
    """``[output]``: which output the labels belong to."""

    name: Annotated[str, Field(min_length=1)]


class ExecutionTable(_Table):
    """``[execution]``: where executors live and when a worker process is given up."""

    host: Literal["thread", "process"] | None = None
    step_timeout_s: _Seconds | None = None
    load_timeout_s: _Seconds | None = None
    max_restarts: Annotated[int, Field(ge=-1)] | None = None
    non_finite: Literal["off", "count", "fail", "retry_fp32"] | None = None


class GoldenTable(_Table):
    """``[golden]``: what ``shoal golden`` has recorded is compared at each load, within these tolerances."""

    file: Annotated[str, Field(min_length=1)] = "golden.json"
    tolerance_levels: Annotated[float, Field(gt=0, le=255)] = 2.0
    tolerance_probability: Annotated[float, Field(gt=0, le=1)] = 0.05


class SideTables(_Table):
    """The whole file."""

    labels: Annotated[str, Field(min_length=1)] | None = None
    required: bool | None = None
    version_labels: dict[_Label, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    output: OutputTable | None = None
    batching: BatchingTable = BatchingTable()
    execution: ExecutionTable = ExecutionTable()
    preprocessing: Preprocessing | None = None
    golden: GoldenTable | None = None


_MODEL_BY_TABLE: dict[str, type[BaseModel]] = {
    "": SideTables,
    "batching": BatchingTable,
    "execution": ExecutionTable,
    "output": OutputTable,
    "preprocessing": Preprocessing,
    "golden": GoldenTable,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFile:
    """A parsed shoal.toml; its methods check it against the model that it belongs to."""

    lines: ConfigLines
    tables: SideTables

    def batching(self, base: BatchingSpec, max_batch_rows: int) -> BatchingSpec:
        """The batching rules of config.pbtxt with those of the file over them.

        Raises:
            ConfigError: A policy or batch sizes that do not fit `max_batch_rows`.
            SeveralProblemsError: Both.
        """
        table = self.tables.batching
        problems = Problems()
        problems.add_all(self._batching_problems(max_batch_rows))
        problems.raise_any()
        policy = table.policy or base.policy
        inherited = base.parameters if policy == base.policy else {}
        given = {name: _over(value, inherited.get(name)) for name, value in table.parameters.items()}
        return replace(
            base,
            policy=policy,
            parameters={**inherited, **given},
            parameter_lines=self._parameter_lines(),
            faithful=table.faithful,
            deadlines=table.deadlines if table.deadlines is not None else table.policy not in {None, "triton"},
            max_queue_requests=table.max_queue_requests or base.max_queue_requests,
            max_queue_rows=table.max_queue_rows or base.max_queue_rows,
            oversize=Oversize(table.oversize) if table.oversize else base.oversize,
            allowed_rows=table.allowed_batch_sizes or base.allowed_rows,
        )

    def execution(self, base: ExecutionSpec) -> ExecutionSpec:
        """The executor rules of config.pbtxt with those of the file over them."""
        given = self.tables.execution.model_dump(exclude_none=True)
        if "host" in given:
            given["host"] = Host(given["host"])
        if "non_finite" in given:
            given["non_finite"] = NonFinite(given["non_finite"])
        return replace(base, **given)

    def preprocessing(self, inputs: Sequence[TensorSpec]) -> Preprocessing | None:
        """The declared preprocessing, which yields exactly what the model's only input takes.

        Raises:
            ConfigError: Several inputs, another type or another shape.
        """
        how = self.tables.preprocessing
        if how is None:
            return None
        if len(inputs) != 1:
            found = f"a model with {len(inputs)} inputs"
            raise self.lines.error("preprocessing", found=found, expected="a model whose only input is the image")
        (image,) = inputs
        if image.data_type is not _ROW_TYPES[how.dtype]:
            expected = f'the type of input "{image.name}", {image.data_type.config_name}'
            fix = next((f'dtype = "{word}"' for word, kind in _ROW_TYPES.items() if kind is image.data_type), "")
            raise self.lines.error("preprocessing.dtype", found=f'"{how.dtype}"', expected=expected, fix=fix)
        if not image.accepts(how.row_shape):
            found = f"{how.layout} rows of shape {list(how.row_shape)}"
            expected = f'the shape of input "{image.name}", {list(image.dims)}; change crop, layout or the model'
            fix = _fitting_rows(image.dims)
            raise self.lines.error("preprocessing.crop", found=found, expected=expected, fix=fix)
        return how

    def labels(self, outputs: Sequence[str], directory: Path) -> Mapping[str, tuple[str, ...]]:
        """The labels by output name: empty, or one entry.

        Raises:
            ConfigError: No such file or output, or no saying which of several outputs it is.
            OSError: The file cannot be read.
        """
        output = self._labelled_output(outputs)
        name = self.tables.labels
        if name is None:
            return {}
        file = file_inside(directory, name)
        if file is None:
            expected = "a file in the model's directory, one label a line"
            raise self.lines.error("labels", found=f"no file {name!r}", expected=expected)
        return {output: read_labels(file, f"{directory.name}/{name}")}

    def _labelled_output(self, outputs: Sequence[str]) -> str:
        names = ", ".join(f'"{name}"' for name in outputs)
        if self.tables.output is not None:
            if self.tables.output.name not in outputs:
                found = f'"{self.tables.output.name}"'
                raise self.lines.error("output.name", found=found, expected=f"an output of the model: {names}")
            return self.tables.output.name
        if self.tables.labels is not None and len(outputs) != 1:
            expected = f"[output] name = one of {names}"
            raise self.lines.error("output.name", found=f"labels for {len(outputs)} outputs", expected=expected)
        return outputs[0] if outputs else ""

    def _parameter_lines(self) -> Mapping[str, int]:
        """By parameter; by the empty name that of the policy."""
        names = ["", *self.tables.batching.parameters]
        paths = ["batching.policy" if not name else f"batching.parameters.{name}" for name in names]
        return {name: line for name, path in zip(names, paths, strict=True) if (line := self.lines.line_of(path))}

    def _batching_problems(self, max_batch_rows: int) -> Iterator[ConfigError]:
        table = self.tables.batching
        if table.policy not in (None, "single") and max_batch_rows == 0:
            found, expected, fix = f'"{table.policy}"', '"single", because max_batch_size is 0', 'policy = "single"'
            yield self.lines.error("batching.policy", found=found, expected=expected, fix=fix)
        if table.max_queue_rows is not None and table.max_queue_rows < max_batch_rows:
            path, found = "batching.max_queue_rows", str(table.max_queue_rows)
            expected = f"room for one batch: at least max_batch_size, {max_batch_rows}"
            yield self.lines.error(path, found=found, expected=expected, fix=f"max_queue_rows = {max_batch_rows}")
        sizes = table.allowed_batch_sizes
        possible = [*sorted({rows for rows in sizes if rows < max_batch_rows}), max_batch_rows]
        fix = f"allowed_batch_sizes = {possible}"
        path, found = "batching.allowed_batch_sizes", str(list(sizes))
        if list(sizes) != sorted(set(sizes)):
            yield self.lines.error(path, found=found, expected="ascending sizes, each once", fix=fix)
        elif sizes and sizes[-1] != max_batch_rows:
            expected = f"sizes that end with max_batch_size, {max_batch_rows}"
            yield self.lines.error(path, found=found, expected=expected, fix=fix)


def _fitting_rows(dims: Sequence[int]) -> str:
    """The keys of [preprocessing] that yield rows of this shape; empty if none do."""
    match list(dims):
        case [3, height, width] if height == width:
            return f'crop = {height}, layout = "CHW"'
        case [height, width, 3] if height == width:
            return f'crop = {height}, layout = "HWC"'
        case _:
            return ""


def _over(value: object, inherited: object) -> object:
    """A value over that of config.pbtxt; in a table only what is given is replaced."""
    if not isinstance(value, Mapping) or not isinstance(inherited, Mapping):
        return value
    below = {str(key): old for key, old in inherited.items()}
    return {**below, **{str(key): _over(new, below.get(str(key))) for key, new in value.items()}}


def parse_side_file(text: str, source: str) -> SideFile:
    """Read the text of a shoal.toml; an empty text is valid and changes nothing.

    Args:
        text: TOML.
        source: File name for messages, e.g. ``resnet/shoal.toml``.

    Raises:
        ConfigError: Not TOML, an unknown key, or an impossible value.
    """
    try:
        return side_file_of(tomllib.loads(text), text, source)
    except ValidationError as error:
        lines = ConfigLines(source=source, line_by_field=line_by_field(text))
        raise impossible(error, lines, _MODEL_BY_TABLE) from error
    except (ValueError, RecursionError) as error:  # ValueError: TOMLDecodeError, and numbers of thousands of digits
        raise not_toml(str(error), text, source) from error


def side_file_of(document: Mapping[str, object], text: str, source: str) -> SideFile:
    """A side file of tables that were read from a text, which tells their lines.

    Raises:
        pydantic.ValidationError: An unknown key, or an impossible value.
    """
    encoded = json.dumps(document, default=str)  # dates are no valid value of any key
    lines = ConfigLines(source=source, line_by_field=line_by_field(text))
    return SideFile(lines=lines, tables=SideTables.model_validate_json(encoded, strict=True))
