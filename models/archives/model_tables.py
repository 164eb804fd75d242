"""``models`` of a config.properties: JSON with a table for each version of each model."""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from models.archives.java_properties import Property
from models.archives.settings import Checked, check_settings, flag, place_of
from models.archives.shown import shown_json
from models.config_lines import TOP_LEVEL, ConfigLines
from models.errors import ConfigError
from models.model_names import printable

_WITHOUT_EFFECT = {
    "marName": "archives are found by what their manifests say",
    "runtimeType": "handlers run in this server's Python",
    "engine": "the handler chooses",
}


class ModelTables(NamedTuple):
    """What the tables say.

    Attributes:
        by_model: By model and by the text of its version.
        default_versions: The version that is called the default one, by model.
    """

    by_model: Mapping[str, Mapping[str, Checked]]
    default_versions: Mapping[str, str]


def parse_model_tables(found: Property, source: str) -> tuple[ModelTables, Mapping[str, int]]:
    """Read the tables.

    Args:
        found: The property ``models``.
        source: The file's name for messages.

    Returns:
        The tables, and the line of each model, version and key by its path, e.g. ``models.resnet.1.0.batchSize``.

    Raises:
        ConfigError: It is no JSON, or not a table of tables of tables.
    """
    document = _json(found, source)
    lines = ConfigLines(source=source, line_by_field=_lines(document, found))
    by_model: dict[str, dict[str, Checked]] = {}
    default_versions: dict[str, str] = {}
    for model, versions in _tables(document, lines, "models"):
        by_model[model] = {}
        for version, table in _tables(versions, lines, f"models.{model}"):
            prefix = f"models.{model}.{version}."
            by_model[model][version] = _checked(table, lines, prefix)
            if table.get("defaultVersion") is True:
                default_versions[model] = version
    return ModelTables(by_model, default_versions), lines.line_by_field


def _checked(table: Mapping[str, object], lines: ConfigLines, prefix: str) -> Checked:
    own = {key: value for key, value in table.items() if key != "defaultVersion" and key not in _WITHOUT_EFFECT}
    checked = check_settings(own, lines, prefix)
    problems = [
        lines.error(f"{prefix}{key}", found="an unknown key", expected="a key of model-config.yaml")
        for key in checked.unknown
    ]
    if expected := flag(table.get("defaultVersion", False)):
        found = shown_json(table["defaultVersion"])
        problems.append(lines.error(f"{prefix}defaultVersion", found=found, expected=expected))
    notes = [
        f"{place_of(lines, prefix + key)}: {prefix}{key}: has no effect: {reason}"
        for key, reason in _WITHOUT_EFFECT.items()
        if key in table
    ]
    return checked._replace(problems=(*checked.problems, *problems), notes=(*checked.notes, *notes))


def _json(found: Property, source: str) -> object:
    try:
        return json.loads(found.value, object_pairs_hook=_printable)
    except json.JSONDecodeError as error:
        line = found.line_at(error.pos)
        raise ConfigError(source=source, line=line, field="models", found=error.msg, expected="JSON") from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of levels
        text = "a value that cannot be read"
        raise ConfigError(source=source, line=found.line, field="models", found=text, expected="JSON") from error


def _printable(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {printable(name): value for name, value in pairs}


def _tables(value: object, lines: ConfigLines, path: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The members of an object that holds objects. Raises ConfigError for anything else."""
    expected = 'tables by model and version: {"name": {"1.0": {"batchSize": 4}}}'
    if not isinstance(value, dict):
        raise lines.error(path or TOP_LEVEL, found=shown_json(value), expected=expected)
    for name, member in value.items():
        if not isinstance(member, dict):
            raise lines.error(f"{path}.{name}", found=shown_json(member), expected=expected)
        yield name, member


def _lines(document: object, found: Property) -> dict[str, int]:
    """By path; found by looking for the quoted names one after the other, which is right unless values quote them."""
    lines = {"models": found.line}
    position = 0

    def walk(value: object, path: str, level: int) -> None:
        nonlocal position
        if not isinstance(value, dict) or level == 3:
            return
        for name, member in value.items():
            at = found.value.find(json.dumps(name), position)
            if at >= 0:
                position = at
                lines[f"{path}.{name}"] = found.line_at(at)
            walk(member, f"{path}.{name}", level + 1)

    walk(document, "models", 0)
    return lines
