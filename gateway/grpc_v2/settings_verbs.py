"""Trace and log settings."""

from collections.abc import Mapping

from tritonclient.grpc import service_pb2

from gateway.engine import Engine
from gateway.errors import InvalidSettingError, LogFormatError
from gateway.grpc_v2.calls import Context
from gateway.grpc_v2.parameters import Message
from gateway.v2.logging_settings import LogSettings, LogValue
from gateway.v2.trace import TraceSettings, TraceValue

_FLAGS = ("log_info", "log_warning", "log_error")
_FORMATS = ("default", "ISO8601")


class SettingsVerbs:
    """Reads and changes them.

    Args:
        engine: Knows the models.
        trace: The trace settings.
        logs: The log settings.
    """

    def __init__(self, engine: Engine, trace: TraceSettings, logs: LogSettings) -> None:
        self._engine = engine
        self._trace = trace
        self._logs = logs

    async def trace(self, request: Message, _context: Context) -> Message:
        """TraceSetting."""
        model: str = request.model_name
        if model and not (model in self._engine.model_names() and self._engine.ready_versions(model)):
            raise InvalidSettingError(f"Request for unknown model : {model[:256]}")
        changes = {name: _trace_value(name, list(setting.value)) for name, setting in request.settings.items()}
        settings = self._trace.update(changes, model) if changes else self._trace.read(model)
        answer = service_pb2.TraceSettingResponse()
        for name, value in settings.items():
            answer.settings[name].value.extend([value] if isinstance(value, str) else value)
        return answer

    async def logs(self, request: Message, _context: Context) -> Message:
        """LogSettings."""
        changes: dict[str, LogValue] = {}
        for name, setting in request.settings.items():
            value = _log_value(name, setting)
            if value is not None:
                changes[name] = value
        return _log_answer(self._logs.update(changes) if changes else self._logs.read())


def _trace_value(name: str, values: list[str]) -> TraceValue | None:
    """None, which clears the setting, for an empty list."""
    if name == "trace_level" or not values:
        return values or None
    if len(values) > 1:
        raise InvalidSettingError(f"expect only 1 value for '{name}'")
    return values[0]


def _log_value(name: str, setting: Message) -> LogValue | None:
    """The value, if it has the right type; None for a setting that is unknown."""
    kind = setting.WhichOneof("parameter_choice")
    if name in _FLAGS:
        if kind != "bool_param":
            raise InvalidSettingError(f"expect boolean for '{name}'")
        return bool(setting.bool_param)
    if name == "log_verbose_level":
        if kind != "uint32_param":
            raise InvalidSettingError(f"expect int32 for '{name}'")
        return int(setting.uint32_param)
    if name == "log_format" and setting.string_param not in _FORMATS:
        raise LogFormatError(f"invalid argument for log_format, got: {setting.string_param}")
    return str(setting.string_param) if name in {"log_file", "log_format"} else None


def _log_answer(settings: Mapping[str, LogValue]) -> Message:
    answer = service_pb2.LogSettingsResponse()
    for name, value in settings.items():
        match value:
            case bool():
                answer.settings[name].bool_param = value
            case int():
                answer.settings[name].uint32_param = value
            case str():
                answer.settings[name].string_param = value
    return answer
