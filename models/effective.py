"""The configuration in force, as tables of shoal.toml and as the two texts that lead to the same version again.

What concerns a model as a whole (``required``, ``version_labels``) is no part of a version and not in them.
"""

import enum
from collections.abc import Mapping

import tomli_w

from models.config_golden import golden_table
from models.side_file import BatchingTable, ExecutionTable
from models.spec import BatchingSpec, ExecutionSpec, ModelSpec

_SPEC_NAMES = {"allowed_batch_sizes": "allowed_rows"}  # by key of [batching], where the specification has another word

_OF_ENSEMBLES = ("max_queue_requests", "deadlines")  # what [batching] of an ensemble may have


def effective_tables(spec: ModelSpec) -> dict[str, object]:
    """What shoal.toml can say, with the values in force, defaults included: JSON-ready values."""
    tables: dict[str, object] = {
        "output": {"name": spec.scores_output.name},
        "batching": _values(BatchingTable.model_fields, spec.batching),
        "execution": _values(ExecutionTable.model_fields, spec.execution),
    }
    if spec.preprocessing is not None:
        tables["preprocessing"] = spec.preprocessing.model_dump(mode="json")
    if spec.golden is not None:
        tables["golden"] = golden_table(spec.golden)
    return tables


def side_text(spec: ModelSpec) -> str:
    """A shoal.toml that, beside the version's own config.pbtxt, leads to the same version; defaults are left out."""
    batching = _values(BatchingTable.model_fields, spec.batching, without_defaults_of=BatchingSpec())
    execution = _values(ExecutionTable.model_fields, spec.execution, without_defaults_of=ExecutionSpec())
    batching |= {"policy": spec.batching.policy, "deadlines": spec.batching.deadlines}
    if spec.steps:  # the models of the steps have the rest
        batching, execution = {key: batching[key] for key in _OF_ENSEMBLES if key in batching}, {}
    tables: dict[str, object] = {"output": {"name": spec.scores_output.name}, "batching": batching}
    if execution:
        tables["execution"] = execution
    if spec.preprocessing is not None:
        tables["preprocessing"] = spec.preprocessing.model_dump(mode="json", exclude_defaults=True)
    if spec.golden is not None:
        tables["golden"] = golden_table(spec.golden)
    return tomli_w.dumps(tables)


def _values(
    keys: Mapping[str, object],
    spec: BatchingSpec | ExecutionSpec,
    *,
    without_defaults_of: BatchingSpec | ExecutionSpec | None = None,
) -> dict[str, object]:
    """By key of a table, the value that the specification has for it."""
    values: dict[str, object] = {}
    for key in keys:
        name = _SPEC_NAMES.get(key, key)
        value = getattr(spec, name)
        if without_defaults_of is None or value != getattr(without_defaults_of, name):
            values[key] = _plain(value)
    return values


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    return value
