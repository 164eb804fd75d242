"""config.properties of a model store: which archives are loaded, and what is set for all and for single models."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from models.archives.java_properties import Property, parse_properties
from models.archives.model_tables import ModelTables, parse_model_tables
from models.archives.settings import Check, Setting, Settings, place_of, similar_key, whole
from models.archives.small_files import read_small_text
from models.config_lines import ConfigLines
from models.errors import ConfigError

_SERVER = "this is a setting of the server here, see `shoal serve --help`"
_NOT_HERE = "there is nothing like it in this server"
_NUMBERS: Mapping[str, tuple[str, Check]] = {
    "default_workers_per_model": ("minWorkers", whole(0, 1024)),
    "job_queue_size": ("jobQueueSize", whole(1)),
    "default_response_timeout": ("responseTimeout", whole(1, 86_400)),
    "default_startup_timeout": ("startupTimeout", whole(1, 86_400)),
}
_FLAGS = ("limit_max_image_pixels", "decode_input_request")
_WITHOUT_EFFECT = {
    "model_store": "the store is the directory that --model-repository names",
    "install_py_dep_per_model": "start the server with --install-py-dep-per-model instead",
    "number_of_gpu": "all GPUs that the server sees are used",
    **dict.fromkeys(
        (
            "inference_address", "management_address", "metrics_address", "max_request_size", "max_response_size",
            "grpc_inference_address", "grpc_inference_port", "grpc_management_address", "grpc_management_port",
            "metrics_mode", "metrics_config", "enable_metrics_api", "enable_model_api", "disable_token_authorization",
            "cors_allowed_origin", "cors_allowed_methods", "cors_allowed_headers", "async_logging",
        ),
        _SERVER,
    ),
    **dict.fromkeys(
        (
            "number_of_netty_threads", "netty_client_threads", "enable_envvars_config", "allowed_urls", "vmargs",
            "prefer_direct_buffer", "blacklist_env_vars", "model_snapshot", "ts_open_inference_protocol",
            "keystore", "keystore_pass", "keystore_type", "private_key_file", "certificate_file", "use_native_io",
            "io_ratio", "workflow_store", "cpu_launcher_enable", "cpu_launcher_args", "system_metrics_cmd",
            "disable_system_metrics", "model_metrics_auto_detect", "ts_header_key_sequence_id",
            "ts_header_key_sequence_start", "ts_header_key_sequence_end", "initial_worker_port",
            "token_expiration_min", "default_service_handler", "unregister_model_timeout",
        ),
        _NOT_HERE,
    ),
}  # fmt: skip
_KEYS = ("load_models", "models", "service_envelope", *_FLAGS, *_NUMBERS, *_WITHOUT_EFFECT)
_NOTHING_SET = Settings({})
_NO_TABLES = ModelTables({}, {})
_BY_FOLDED = {key.replace("_", ""): key for key in _KEYS}


class Loaded(NamedTuple):
    """One archive that ``load_models`` names; `model` is empty unless it renames the model."""

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


def parse_store_config(text: str, source: str) -> StoreConfig:
    """See `read_store_config`; but a file that cannot be understood as a whole is a ConfigError."""
    properties = {found.key: found for found in parse_properties(text)}  # of equal keys the last one counts
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
        found = ascii(envelope.value.strip())[:80]
        yield lines.error("service_envelope", found=found, expected="no such key: service envelopes are not supported")


def _notes(properties: Mapping[str, Property], lines: ConfigLines) -> Iterator[str]:
    for key in properties:
        if key in _WITHOUT_EFFECT:
            yield f"{place_of(lines, key)}: {key}: has no effect: {_WITHOUT_EFFECT[key]}"
        elif key not in _KEYS and not similar_key(key, _BY_FOLDED):
            yield f"{place_of(lines, key)}: {ascii(key)[1:-1]}: has no effect: unknown"


def _load(text: str, lines: ConfigLines) -> tuple[tuple[Loaded, ...] | None, list[ConfigError]]:
    if text.lower() in ("all", ""):
        return None, []
    loaded: list[Loaded] = []
    problems: list[ConfigError] = []
    for part in filter(None, map(str.strip, text.split(","))):
        model, equals, file = part.partition("=")
        file = file.strip() if equals else part
        name = re.split(r"[/\\]", file)[-1]
        if name != file:
            expected = "the name of an archive in the store; download it, or put it there"
            problems.append(lines.error("load_models", found=ascii(file)[:120], expected=expected))
        loaded.append(Loaded(name, model.strip() if equals else ""))
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
            problems.append(lines.error(key, found=ascii(text)[:80], expected=expected))
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
            problems.append(lines.error(key, found=ascii(text)[:80], expected="true or false"))
    return flags, problems
