"""Where the fields of a configuration file stand, so that every complaint can cite a line."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.errors import ConfigError

TOP_LEVEL = "(top level)"  # the field path of a mistake outside of any field


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLines:
    """A configuration file's name and the line of each field that it mentions.

    Attributes:
        source: File name as the user knows it, e.g. ``resnet/config.pbtxt``.
        line_by_field: 1-based line by field path, e.g. ``input[0].dims[1]``.
    """

    source: str
    line_by_field: Mapping[str, int] = field(default_factory=dict)

    def mentions(self, path: str) -> bool:
        """Whether the file gives this field, be it with its default value."""
        return path in self.line_by_field

    def line_of(self, path: str) -> int | None:
        """The field's line; for a missing field that of the innermost block around it, None at the top level."""
        while path:
            if path in self.line_by_field:
                return self.line_by_field[path] or None
            # A key of a table can look like anything; what is cut off begins with a dot or a bracket all the same.
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None

    def error(self, path: str, *, found: str, expected: str, fix: str = "") -> ConfigError:
        """The error for an impossible value of this field; `fix` is the line to write, where it can be told."""
        return ConfigError(
            source=self.source, line=self.line_of(path), field=path, found=found, expected=expected, fix=fix
        )
