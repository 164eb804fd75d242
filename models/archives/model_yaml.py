"""model-config.yaml of an archive: TorchServe's own keys, and whatever the handler wants to find there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from models.archives.settings import Checked, Settings, check_settings, place_of
from models.archives.shown import shown
from models.archives.small_files import read_small_text
from models.config_lines import TOP_LEVEL, ConfigLines
from models.errors import ConfigError
from models.model_names import printable

# Sections that handlers are known to read; nothing about them is worth a line in the log.
_OF_HANDLERS = frozenset({"handler", "pt2", "micro_batching", "deepspeed", "pippy", "tp", "fast_kernels"})
_MOST_NODES = 50_000  # keys and values
_MOST_LEVELS = 64
_LONGEST_NUMBER = 256
_MOST_NOTES = 20
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_MERGE = "tag:yaml.org,2002:merge"
# What PyYAML raises for values that are not what their tags say, for forbidden characters, for dates and numbers that
# do not exist, and for thousands of levels.
_UNREADABLE = (
    yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


def read_model_yaml(file: Path, source: str) -> Checked:
    """Read and check a model-config.yaml; its problems are told together.

    Args:
        file: The file.
        source: Its name for messages, e.g. ``resnet.mar/model-config.yaml``.

    Raises:
        ConfigError: It is no YAML, or not a table.
        OSError: It cannot be read.
    """
    return parse_model_yaml(read_small_text(file, source), source)


def parse_model_yaml(text: str, source: str) -> Checked:
    """See `read_model_yaml`."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Checked(Settings({}), (), (), ())
        lines, table = _table(loader, node, source)
    except yaml.MarkedYAMLError as error:
        raise _no_yaml(error, source) from error
    except _UNREADABLE as error:
        raise ConfigError(source=source, field=TOP_LEVEL, found=_unreadable(error), expected="YAML") from error
    checked = check_settings(table, lines)
    return checked._replace(notes=(*checked.notes, *_notes(checked, lines)))


class _Loader(yaml.SafeLoader):
    """Reads only what is as small as configuration is. Aliases cost nothing, except where tables are merged."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._level = 0
        self._merged = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._nodes += 1
        self._level += 1
        if self._nodes > _MOST_NODES or self._level > _MOST_LEVELS:
            limit = f"at most {_MOST_NODES} values, in at most {_MOST_LEVELS} levels, are read"
            raise yaml.composer.ComposerError(None, None, limit, self.get_mark())
        node = super().compose_node(parent, index)
        self._level -= 1
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            text = f"a number of {len(node.value)} characters"
            raise yaml.composer.ComposerError(None, None, text, node.start_mark)
        return node

    @override
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        self._merged += len(node.value)
        if self._merged > 2 * _MOST_NODES:
            text = f"tables that are merged to more than {2 * _MOST_NODES} keys"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)


def _table(loader: _Loader, node: yaml.Node, source: str) -> tuple[ConfigLines, dict[str, object]]:
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(source=source, line=1, field=TOP_LEVEL, found="no table", expected="lines of key: value")
    line_by_field: dict[str, int] = {}
    for key, _ in node.value:
        name, line = _name(key, source), key.start_mark.line + 1
        if name in line_by_field:
            raise ConfigError(source=source, line=line, field=name, found="it a second time", expected="each key once")
        if key.tag != _MERGE:
            line_by_field[name] = line
    loader.flatten_mapping(node)  # what is merged comes first, and the file's own keys replace it
    by_key = {_name(key, source): (key, value) for key, value in node.value}
    line_by_field |= {name: key.start_mark.line + 1 for name, (key, _) in by_key.items()}
    lines = ConfigLines(source=source, line_by_field=line_by_field)
    return lines, {name: _value(loader, value, name, lines) for name, (_, value) in by_key.items()}


def _value(loader: _Loader, node: yaml.Node, name: str, lines: ConfigLines) -> object:
    try:
        return loader.construct_object(node, deep=True)
    except yaml.MarkedYAMLError:
        raise
    except _UNREADABLE as error:
        raise lines.error(name, found=_unreadable(error), expected="YAML") from error


def _name(key: yaml.Node, source: str) -> str:
    if not isinstance(key, yaml.ScalarNode):
        line = key.start_mark.line + 1
        raise ConfigError(source=source, line=line, field=TOP_LEVEL, found="a list or table as a key", expected="text")
    return printable(key.value)


def _notes(checked: Checked, lines: ConfigLines) -> Iterator[str]:
    keys = [key for key in checked.unknown if key not in _OF_HANDLERS]
    for key in keys[:_MOST_NOTES]:
        yield f"{place_of(lines, key)}: {key[:80]}: is for the handler, this server does not know it"
    if keys[_MOST_NOTES:]:
        yield f"{lines.source}: {len(keys) - _MOST_NOTES} further keys are for the handler as well"


def _unreadable(error: Exception) -> str:
    return f"something that cannot be read ({shown(str(error) or type(error).__name__)})"


def _no_yaml(error: yaml.MarkedYAMLError, source: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    found = f"a mistake: {printable((error.problem or error.context or 'unknown')[:200])}"
    return ConfigError(
        source=source, line=None if mark is None else mark.line + 1, field=TOP_LEVEL, found=found, expected="YAML"
    )
