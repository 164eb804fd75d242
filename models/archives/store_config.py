"""config.properties of a model store: which archives are loaded, and what is set for all and for single models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from models.archives.java_properties import Property, parse_properties
from models.archives.known_names import stem
from models.archives.limits import problem_of_name
from models.archives.model_tables import ModelTables, parse_model_tables
from models.archives.settings import Check, Setting, Settings, place_of, similar_key, whole
from models.archives.shown import shown
from models.archives.small_files import read_small_text
from models.archives.store_keys import WITHOUT_EFFECT
from models.config_lines import ConfigLines
from models.errors import ConfigError
from models.model_names import NAME_RULE, is_model_name, nearest_name, printable

STORE_CONFIG = "config.properties"
"""The file's name."""

_NUMBERS: Mapping[str, tuple[str, Check]] = {
    "default_workers_per_model": ("minWorkers", whole(0, 1024)),
    "job_queue_size": ("jobQueueSize", whole(1)),
    "default_response_timeout": ("responseTimeout", whole(1, 86_400)),
    "default_startup_timeout": ("startupTimeout", whole(1, 86_400)),
}
_FLAGS = ("limit_max_image_pixels", "decode_input_request")
_KEYS = ("load_models", "models", "service_envelope", *_FLAGS, *_NUMBERS, *WITHOUT_EFFECT)
_NOTHING_SET = Settings({})
_NO_TABLES = ModelTables({}, {})
_BY_FOLDED = {key.replace("_", ""): key for key in _KEYS}


class Loaded(NamedTuple):
    """One archive that ``load_models`` names.

    Attributes:
        file: Empty if it is refused.
        model: Empty unless it renames the model; of one that is refused, the name under which that is told.
    """

    file: str
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """What a config.properties says; an empty one says nothing.

    Attributes:
        lines: Where its keys stand.
        load: The archives that are loaded; None: all.
        defaults: For every model.
        tables: For single models.
        flags: ``limit_max_image_pixels`` and ``decode_input_request``.
        store_name: Last step of ``model_store``.
        problems: What is wrong with the file as a whole; no model of the store can be served then.
        notes: What has no effect, in sentences.
    """

    lines: ConfigLines
    load: tuple[Loaded, ...] | None = None
    defaults: Settings = _NOTHING_SET
    tables: ModelTables = _NO_TABLES
    flags: Mapping[str, bool] = field(default_factory=dict)
    store_name: str = ""
    problems: tuple[ConfigError, ...] = ()
    notes: tuple[str, ...] = ()


def read_store_config(file: Path) -> StoreConfig:
    """Read a config.properties; whatever is wrong with it is in the answer. Raises OSError."""
    try:
        return parse_store_config(read_small_text(file, file.name), file.name)
    except ConfigError as error:
        return StoreConfig(lines=ConfigLines(source=file.name), problems=(error,))


def find_store_config(root: Path) -> Path | None:
    """The file of a store: in it; else beside it, if it says that it belongs to this store."""
    own = root / STORE_CONFIG
    if own.exists():  # whatever it is: reading it tells
        return own
    return next((file for file in _beside(root) if read_store_config(file).store_name == root.name), None)


def _beside(root: Path) -> Iterator[Path]:
    return (file for file in (root.parent / STORE_CONFIG, root.parent / "config" / STORE_CONFIG) if file.is_file())


def foreign_configs(root: Path) -> Iterator[str]:
    """Sentences about files beside the store that are not taken for its own."""
    for file in _beside(root):
        name = read_store_config(file).store_name
        found = (
            f"its model_store is '{printable(name)}', not '{printable(root.name)}'" if name else "it has no model_store"
        )
        yield f"{STORE_CONFIG}: has no effect: it is beside the store and {found}; put it into the store"


def parse_store_config(text: str, source: str) -> StoreConfig:
    """See `read_store_config`; but a file that cannot be understood as a whole is a ConfigError."""
    properties = {printable(found.key): found for found in parse_properties(text)}  # of equal keys the last one counts
    line_by_field: dict[str, int] = {key: found.line for key, found in properties.items()}
    lines = ConfigLines(source=source, line_by_field=line_by_field)
    problems = [*_unknown(properties, lines), *_unsupported(properties, lines)]
    tables = _NO_TABLES
    if "models" in properties:
        try:
            tables, table_lines = parse_model_tables(properties["models"], source)
            line_by_field |= table_lines
        except ConfigError as error:
            problems.append(error)
    values = {key: found.value.strip() for key, found in properties.items()}
    load, wrong_names = _load(values.get("load_models", "all"), lines)
    defaults, wrong_numbers = _numbers(values, lines)
    flags, wrong_flags = _read_flags(values, lines)
    return StoreConfig(
        lines=lines,
        load=load,
        defaults=defaults,
        tables=tables,
        flags=flags,
        store_name=values.get("model_store", "").rstrip("/").rpartition("/")[2],
        problems=(*problems, *wrong_names, *wrong_numbers, *wrong_flags),
        notes=tuple(_notes(properties, lines)),
    )


def _unknown(properties: Mapping[str, Property], lines: ConfigLines) -> Iterator[ConfigError]:
    for key in properties:
        similar = None if key in _KEYS else similar_key(key, _BY_FOLDED)
        if similar:
            yield lines.error(key, found="an unknown key", expected=f"{similar}, if that is meant")


def _unsupported(properties: Mapping[str, Property], lines: ConfigLines) -> Iterator[ConfigError]:
    envelope = properties.get("service_envelope")
    if envelope and envelope.value.strip():
        found = shown(envelope.value.strip())
        yield lines.error("service_envelope", found=found, expected="no such key: service envelopes are not supported")


def _notes(properties: Mapping[str, Property], lines: ConfigLines) -> Iterator[str]:
    for key in properties:
        if key in WITHOUT_EFFECT:
            yield f"{place_of(lines, key)}: {key}: has no effect: {WITHOUT_EFFECT[key]}"
        elif key not in _KEYS and not similar_key(key, _BY_FOLDED):
            yield f"{place_of(lines, key)}: {key}: has no effect: unknown"


def _load(text: str, lines: ConfigLines) -> tuple[tuple[Loaded, ...] | None, list[ConfigError]]:
    if text.lower() in ("all", ""):
        return None, []
    loaded: list[Loaded] = []
    problems: list[ConfigError] = []
    for part in filter(None, map(str.strip, text.split(","))):
        model, equals, file = (step.strip() for step in part.rpartition("="))
        if problem_of_name(file) or "/" in file:
            expected = "the name of an archive in the store; download it, or put it there"
            problems.append(lines.error("load_models", found=shown(file), expected=expected))
            loaded.append(Loaded("", nearest_name(model) if equals else stem(Path(file))))
        elif equals and not is_model_name(model):
            problems.append(lines.error("load_models", found=f"the model's name {shown(model)}", expected=NAME_RULE))
            loaded.append(Loaded("", nearest_name(model)))
        else:
            loaded.append(Loaded(file, model))
    return tuple(loaded), problems


def _numbers(values: Mapping[str, str], lines: ConfigLines) -> tuple[Settings, list[ConfigError]]:
    settings: dict[str, Setting] = {}
    problems: list[ConfigError] = []
    for key, (name, check) in _NUMBERS.items():
        text = values.get(key, "")
        if not text:
            continue
        value = int(text) if text.isdecimal() and len(text) < 12 else text
        if expected := check(value):
            problems.append(lines.error(key, found=shown(text), expected=expected))
        else:
            place = place_of(lines, key)
            settings[name] = Setting(value, place, place)
    return Settings(settings), problems


def _read_flags(values: Mapping[str, str], lines: ConfigLines) -> tuple[Mapping[str, bool], list[ConfigError]]:
    flags: dict[str, bool] = {}
    problems: list[ConfigError] = []
    for key in _FLAGS:
        text = values.get(key, "")
        if text.lower() in ("true", "false"):
            flags[key] = text.lower() == "true"
        elif text:
            problems.append(lines.error(key, found=shown(text), expected="true or false"))
    return flags, problems
