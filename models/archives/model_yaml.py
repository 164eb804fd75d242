"""model-config.yaml of an archive: TorchServe's own keys, and whatever the handler wants to find there."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from models.archives.settings import Checked, Settings, check_settings, place_of
from models.archives.small_files import read_small_text
from models.config_lines import TOP_LEVEL, ConfigLines
from models.errors import ConfigError

# Sections that handlers are known to read; nothing about them is worth a line in the log.
_OF_HANDLERS = frozenset({"handler", "pt2", "micro_batching", "deepspeed", "pippy", "tp", "fast_kernels"})


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
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            return Checked(Settings({}), (), (), ())
        lines, table = _table(node, source)
    except yaml.MarkedYAMLError as error:
        raise _no_yaml(error, source) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Characters that YAML forbids; dates and numbers that do not exist; thousands of levels.
        found = f"something that cannot be read ({ascii(str(error))[1:81]})"
        raise ConfigError(source=source, field=TOP_LEVEL, found=found, expected="YAML") from error
    checked = check_settings(table, lines)
    return checked._replace(notes=(*checked.notes, *_notes(checked, lines)))


def _table(node: yaml.Node, source: str) -> tuple[ConfigLines, dict[str, object]]:
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(source=source, line=1, field=TOP_LEVEL, found="no table", expected="lines of key: value")
    by_key: dict[str, yaml.Node] = {}
    line_by_field: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in by_key:
            raise ConfigError(source=source, line=line, field=name, found="it a second time", expected="each key once")
        by_key[name] = value
        line_by_field[name] = line
    loader = yaml.SafeLoader("")
    table = {name: loader.construct_object(value, deep=True) for name, value in by_key.items()}
    return ConfigLines(source=source, line_by_field=line_by_field), table


def _notes(checked: Checked, lines: ConfigLines) -> Iterator[str]:
    for key in checked.unknown:
        if key not in _OF_HANDLERS:
            yield f"{place_of(lines, key)}: {ascii(key)[1:-1]}: is for the handler, this server does not know it"


def _no_yaml(error: yaml.MarkedYAMLError, source: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    found = f"a mistake: {error.problem or error.context or 'unknown'}"
    return ConfigError(
        source=source, line=None if mark is None else mark.line + 1, field=TOP_LEVEL, found=found, expected="YAML"
    )
