"""Triton's trace settings, which can be read and changed like there. Nothing is traced: no file is ever written."""

import re
from collections.abc import Callable, Mapping

from gateway.errors import FixedSettingError, InvalidSettingError

TraceValue = str | list[str]

_TRACING: TraceValue = ["TIMESTAMPS", "TENSORS"]
_TRACING_LEVELS = frozenset(_TRACING)  # MIN and MAX, like unknown words, change nothing
_UINT32_MAX = 2**32 - 1
_INT32_MAX = 2**31 - 1
_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)")
_DEFAULTS: Mapping[str, TraceValue] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}


class TraceSettings:
    """The settings of all models and, where they differ, of single ones.

    There is no trace file, so as in a Triton that was started without one, a level other than ``OFF`` is refused.
    """

    def __init__(self) -> None:
        self._changed: dict[str, dict[str, TraceValue]] = {}  # by model; "" stands for all

    def read(self, model: str = "") -> dict[str, TraceValue]:
        """The settings of a model, or those of all models that have none of their own."""
        return {**_DEFAULTS, **self._changed.get("", {}), **self._changed.get(model, {})}

    def update(self, changes: Mapping[str, TraceValue | None], model: str = "") -> dict[str, TraceValue]:
        """Change some settings, all of them or none.

        Args:
            changes: By name. None takes a setting back to that of all models, or to the default. What is unknown is
                ignored.
            model: Whose settings; empty: those of all models.

        Returns:
            The settings afterwards, as `read` gives them.

        Raises:
            FixedSettingError: The trace file is among them.
            InvalidSettingError: A value that a setting cannot have.
        """
        if "trace_file" in changes:
            raise FixedSettingError("trace file location can not be updated through network protocol")
        own = dict(self._changed.get(model, {}))
        for name, parse in _PARSERS.items():  # in Triton's order, which decides what is told of two mistakes
            if name not in changes:
                continue
            value = changes[name]
            own.pop(name, None)
            if value is not None:
                own[name] = parse(value)
        if own.get("trace_level") is _TRACING:
            raise InvalidSettingError("Attempting to set invalid trace setting :trace file name is not given")
        if own:
            self._changed[model] = own
        else:
            self._changed.pop(model, None)
        return self.read(model)


def _level(value: TraceValue) -> TraceValue:
    words = [value] if isinstance(value, str) else value
    if "OFF" in words and len(words) > 1:
        raise InvalidSettingError("Expect only one trace level 'OFF' is specified")
    return ["OFF"] if _TRACING_LEVELS.isdisjoint(words) else _TRACING


def _rate(name: str) -> Callable[[TraceValue], TraceValue]:
    def parse(value: TraceValue) -> TraceValue:
        number = _integer(name, value, "0", -_UINT32_MAX, _UINT32_MAX - 1, _UINT32_MAX)
        return str(number % (_UINT32_MAX + 1))  # a negative one wraps around, as Triton's does

    return parse


def _count(value: TraceValue) -> TraceValue:
    number = _integer("trace_count", value, "-1", -_INT32_MAX - 1, _INT32_MAX, _INT32_MAX)
    if number < -1:
        raise InvalidSettingError(f"Unable to parse 'trace_count'. Expecting value >= -1, got:{number}")
    return str(number)


def _integer(name: str, value: TraceValue, shown_least: str, least: int, most: int, shown_most: int) -> int:
    """What the text begins with, as C's functions read it."""
    text = value if isinstance(value, str) else "".join(value)
    match = _INTEGER.match(text)
    if match is None:
        raise InvalidSettingError(f"Unable to parse '{name}', got: {text}")
    digits = match[1]
    if len(digits) > 20 or not least <= int(digits) <= most:
        raise InvalidSettingError(
            f"Unable to parse '{name}', value is out of range [ {shown_least}, {shown_most} ], got: {text}"
        )
    return int(digits)


_PARSERS: Mapping[str, Callable[[TraceValue], TraceValue]] = {
    "trace_level": _level,
    "trace_rate": _rate("trace_rate"),
    "trace_count": _count,
    "log_frequency": _rate("log_frequency"),
}
