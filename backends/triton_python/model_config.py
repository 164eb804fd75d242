"""`ModelConfig`, which ``auto_complete_config`` fills in, and looking tensors up in a configuration."""

import copy
import json
from collections.abc import Mapping
from typing import Any

_TENSOR_KEYS = {"name", "data_type", "dims"}
_INPUT_KEYS = {*_TENSOR_KEYS, "optional", "allow_ragged_batch", "format", "reshape", "is_shape_tensor"}
_OUTPUT_KEYS = {*_TENSOR_KEYS, "label_filename", "reshape", "is_shape_tensor"}


class ModelConfig:
    """A configuration that can be completed; what it says already is kept.

    Args:
        model_config: As JSON, or as the values that JSON has.
    """

    def __init__(self, model_config: str | Mapping[str, Any]) -> None:
        config = json.loads(model_config) if isinstance(model_config, str) else copy.deepcopy(dict(model_config))
        self._model_config: dict[str, Any] = config

    def as_dict(self) -> dict[str, Any]:
        """A copy, as JSON has it."""
        return copy.deepcopy(self._model_config)

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch. Raises ValueError if the configuration allows more."""
        configured = self._model_config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"max_batch_size is {configured} in the configuration and {max_batch_size} in auto_complete_config, "
                "expected at least as much"
            )
        if not configured:
            self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Turn dynamic batching on, unless the configuration has a batcher."""
        if "sequence_batching" not in self._model_config:
            self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict: Mapping[str, Any]) -> None:
        """Say whether the model answers a request several times. Raises ValueError for another key than decoupled."""
        _check_keys("model_transaction_policy", transaction_policy_dict, set(), {"decoupled"})
        self._model_config["model_transaction_policy"] = dict(transaction_policy_dict)

    def add_input(self, input_: Mapping[str, Any]) -> None:
        """Declare an input: a dict with name, data_type and dims. Raises ValueError where the configuration differs."""
        _check_keys("input", input_, _TENSOR_KEYS, _INPUT_KEYS)
        self._add("input", input_)

    def add_output(self, output: Mapping[str, Any]) -> None:
        """Declare an output, likewise."""
        _check_keys("output", output, _TENSOR_KEYS, _OUTPUT_KEYS)
        self._add("output", output)

    def _add(self, kind: str, declared: Mapping[str, Any]) -> None:
        tensors = self._model_config.setdefault(kind, [])
        tensor = next((tensor for tensor in tensors if tensor["name"] == declared["name"]), None)
        if tensor is None:
            tensors.append(dict(declared))
            return
        for key, value in declared.items():
            configured = tensor.get(key)
            if configured in (None, [], "TYPE_INVALID"):  # what the configuration leaves open
                tensor[key] = value
            elif key != "name" and configured != value:
                raise ValueError(
                    f"{kind} '{declared['name']}': {key} is {configured} in the configuration and {value} in "
                    "auto_complete_config, expected the same"
                )


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> Any:
    """The declaration of an input in a configuration, or None."""
    return _tensor(model_config, "input", name)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> Any:
    """The declaration of an output in a configuration, or None."""
    return _tensor(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Whether a configuration says that the model answers a request several times; no such model is served here."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def _tensor(model_config: Mapping[str, Any], kind: str, name: str) -> Any:
    return next((tensor for tensor in model_config.get(kind, ()) if tensor["name"] == name), None)


def _check_keys(what: str, found: Mapping[str, Any], required: set[str], allowed: set[str]) -> None:
    """Raise ValueError for other keys, or for values that JSON has not: here, where the user's line is known."""
    try:
        json.dumps(dict(found))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: found a value that is no JSON ({error}), expected plain numbers and texts") from None
    missing, unknown = required - found.keys(), found.keys() - allowed
    if missing or unknown:
        names = ", ".join(sorted(missing or unknown))
        problem = f"found no {names}" if missing else f"found {names}"
        raise ValueError(f"{what}: {problem}, expected the keys {', '.join(sorted(allowed))}")
