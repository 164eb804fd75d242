"""What may be set for a model of a store: the keys of model-config.yaml and of ``models`` in config.properties.

Each key is honoured, refused, or has no effect for a reason that is told. Texts that look like one of them are errors.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from models.archives.shown import shown
from models.config_lines import ConfigLines
from models.errors import ConfigError

_LARGEST = 2**31 - 1  # of the originals' integers
_SIMILAR = 0.86
_ONE_DAY_S = 86_400

Check = Callable[[object], str]
"""What a value should be; empty if it is."""


class Setting(NamedTuple):
    """A value that somebody has set.

    Attributes:
        value: The value, checked.
        place: File and line for messages, e.g. ``resnet.mar/model-config.yaml:3``.
        source: File and line as `ModelSpec.sources` has them, e.g. ``model-config.yaml:3``.
    """

    value: object
    place: str
    source: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What is set for one model version, by key; what is not set has TorchServe's default."""

    by_key: Mapping[str, Setting]

    def over(self, other: "Settings") -> "Settings":
        """These, and those of `other` for the keys that these lack."""
        return Settings({**other.by_key, **self.by_key})

    def number(self, key: str, default: int) -> int:
        """An integer."""
        value = self.value(key, default)
        return value if isinstance(value, int) else default

    def value(self, key: str, default: object) -> object:
        """Any value."""
        return self.by_key[key].value if key in self.by_key else default

    def source(self, key: str) -> str:
        """Where the value comes from."""
        return self.by_key[key].source if key in self.by_key else "default"

    def place(self, key: str) -> str:
        """Where the value stands, for messages."""
        return self.by_key[key].place if key in self.by_key else ""


def whole(least: int, largest: int = _LARGEST) -> Check:
    """An integer in a range."""

    def check(value: object) -> str:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= largest
        return "" if fits else f"a whole number from {least} to {largest}"

    return check


def flag(value: object) -> str:
    """True or false."""
    return "" if isinstance(value, bool) else "true or false"


def _device_type(value: object) -> str:
    return "" if isinstance(value, str) and value.lower() in ("cpu", "gpu") else "cpu or gpu"


def _device_ids(value: object) -> str:
    check = whole(0)
    is_list = isinstance(value, list) and value and not any(map(check, value)) and len(set(value)) == len(value)
    return "" if is_list else "a list of numbers of GPUs, each once, e.g. [0, 1]"


def _nothing(feature: str, *harmless: object) -> Check:
    """Refused, unless it is switched off."""

    def check(value: object) -> str:
        is_off = value is None or any(type(value) is type(off) and value == off for off in harmless)
        return "" if is_off else f"no such key: {feature} is not supported; remove it"

    return check


class _Rule(NamedTuple):
    check: Check
    no_effect: str = ""


_SEQUENCES = "a sequence batcher"
_OF_SEQUENCES = "there are no sequences"
_RULES: dict[str, _Rule] = {
    "minWorkers": _Rule(whole(0, 1024)),
    "maxWorkers": _Rule(whole(0, 1024)),
    "batchSize": _Rule(whole(1, 65_536)),
    "maxBatchDelay": _Rule(whole(0, 3_600_000)),
    "responseTimeout": _Rule(whole(1, _ONE_DAY_S)),
    "startupTimeout": _Rule(whole(1, _ONE_DAY_S)),
    "deviceType": _Rule(_device_type),
    "deviceIds": _Rule(_device_ids),
    "jobQueueSize": _Rule(whole(1)),
    "clientTimeoutInMills": _Rule(whole(0)),
    "useJobTicket": _Rule(flag),
    "maxRetryTimeoutInSec": _Rule(whole(1), "workers are restarted as [execution] max_restarts says"),
    "useVenv": _Rule(flag, "requirements are installed beside the model, with --install-py-dep-per-model"),
    "parallelType": _Rule(_nothing("a model that is spread over several workers", "")),
    "parallelLevel": _Rule(_nothing("a model that is spread over several workers", 1)),
    "torchrun": _Rule(_nothing("torchrun")),
    "continuousBatching": _Rule(_nothing("continuous batching", False)),
    "asyncCommunication": _Rule(_nothing("asynchronous communication with the handler", False)),
    "sequenceBatching": _Rule(_nothing(_SEQUENCES, False)),
    "stateful": _Rule(_nothing(_SEQUENCES, False)),
    "sequenceMaxIdleMSec": _Rule(whole(0), _OF_SEQUENCES),
    "sequenceTimeoutMSec": _Rule(whole(0), _OF_SEQUENCES),
    "maxNumSequence": _Rule(whole(0), _OF_SEQUENCES),
    "maxSequenceJobQueueSize": _Rule(whole(0), _OF_SEQUENCES),
}
_BY_FOLDED = {key.lower(): key for key in _RULES}


class Checked(NamedTuple):
    """What a table of keys and values comes to.

    Attributes:
        settings: The keys that are known and fine.
        unknown: Those that are not known and not similar to known ones.
        problems: The others.
        notes: What has no effect, in sentences.
    """

    settings: Settings
    unknown: tuple[str, ...]
    problems: tuple[ConfigError, ...]
    notes: tuple[str, ...]


def check_settings(table: Mapping[str, object], lines: ConfigLines, prefix: str = "") -> Checked:
    """Check every key and value of a table.

    Args:
        table: By key.
        lines: Where the keys stand.
        prefix: Of the keys' field paths, e.g. ``models.resnet.1.0.``.
    """
    settings: dict[str, Setting] = {}
    unknown: list[str] = []
    problems: list[ConfigError] = []
    notes: list[str] = []
    for key, value in table.items():
        path = f"{prefix}{key}"
        rule = _RULES.get(key)
        if rule is None:
            similar = similar_key(key, _BY_FOLDED)
            if similar is None:
                unknown.append(key)
            else:
                problems.append(lines.error(path, found="an unknown key", expected=f"{similar}, if that is meant"))
        elif expected := rule.check(value):
            problems.append(lines.error(path, found=shown(value), expected=expected))
        else:
            place = place_of(lines, path)
            settings[key] = Setting(value, place, place.rpartition("/")[2])
            notes += [f"{place}: {path}: has no effect: {rule.no_effect}"] if rule.no_effect and value else []
    checked = Settings(settings)
    problems += _contradictions(checked, lines, prefix)
    notes += _without_effect(checked)
    return Checked(checked, tuple(unknown), tuple(problems), tuple(notes))


def _contradictions(settings: Settings, lines: ConfigLines, prefix: str) -> Iterator[ConfigError]:
    least, most = settings.number("minWorkers", 1), settings.number("maxWorkers", _LARGEST)
    if most < least:
        yield lines.error(f"{prefix}maxWorkers", found=str(most), expected=f"at least minWorkers, {least}")
    if "deviceIds" in settings.by_key and str(settings.value("deviceType", "gpu")).lower() != "gpu":
        yield lines.error(f"{prefix}deviceIds", found="GPUs with deviceType cpu", expected="deviceType gpu, or no GPUs")


def _without_effect(settings: Settings) -> Iterator[str]:
    most = settings.number("maxWorkers", 0)
    if most > settings.number("minWorkers", 0):
        reason = "workers are not added when there is more to do; minWorkers of them run"
        yield f"{settings.place('maxWorkers')}: maxWorkers: {most} has no effect: {reason}"


def similar_key(key: str, by_folded: Mapping[str, str]) -> str | None:
    """The known key that an unknown one looks like; underscores, dashes and case do not count."""
    folded = key.replace("_", "").replace("-", "").lower()
    found = difflib.get_close_matches(folded, by_folded, n=1, cutoff=_SIMILAR)
    return by_folded[found[0]] if found else None


def place_of(lines: ConfigLines, path: str) -> str:
    """File and line of a field."""
    line = lines.line_of(path)
    return lines.source if line is None else f"{lines.source}:{line}"
