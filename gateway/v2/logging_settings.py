"""Triton's log settings: what is logged can be changed while serving; where to cannot."""

from collections.abc import Callable, Mapping

from gateway.errors import FixedSettingError, LogFormatError
from gateway.logs import LogLevels

LogValue = bool | int | str

_FORMATS = ("default", "ISO8601")
_UINT32 = 2**32
_USUAL = LogLevels()


class LogSettings:
    """The log settings of the process.

    Args:
        levels: What is logged now.
        apply: Told what shall be logged, whenever it changes.
    """

    def __init__(self, levels: LogLevels = _USUAL, apply: Callable[[LogLevels], None] | None = None) -> None:
        self._levels = levels
        self._apply = apply

    def read(self) -> dict[str, LogValue]:
        """All settings by Triton's names."""
        levels = self._levels
        return {
            "log_file": "",
            "log_info": levels.info,
            "log_warning": levels.warning,
            "log_error": levels.error,
            "log_verbose_level": levels.verbose,
            "log_format": _FORMATS[levels.iso_times],
        }

    def update(self, changes: Mapping[str, LogValue | None]) -> dict[str, LogValue]:
        """Change some settings, all of them or none.

        Args:
            changes: By name, each of the type that `read` gives. None changes nothing; what is unknown is ignored.

        Returns:
            The settings afterwards, as `read` gives them.

        Raises:
            FixedSettingError: The log file is among them.
            LogFormatError: An unknown format.
        """
        if changes.get("log_file") is not None:
            raise FixedSettingError("log file location can not be updated through network protocol")
        wanted = {**self.read(), **{name: value for name, value in changes.items() if value is not None}}
        if wanted["log_format"] not in _FORMATS:
            raise LogFormatError(f"invalid argument for --log_format, got: {wanted['log_format']}")
        levels = LogLevels(
            info=bool(wanted["log_info"]),
            warning=bool(wanted["log_warning"]),
            error=bool(wanted["log_error"]),
            verbose=int(wanted["log_verbose_level"]) % _UINT32,
            iso_times=wanted["log_format"] == _FORMATS[True],
        )
        if levels != self._levels:
            self._levels = levels
            if self._apply is not None:
                self._apply(levels)
        return self.read()
