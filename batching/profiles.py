"""Every policy by its name and its original parameters: what configurations, experiments and reports use.

A profile is one server's batcher (or an algorithm of a paper) as a policy, with the original's parameter names, units
and defaults. `create_policy` checks names, types and values, so that a typing error never means a default.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from batching.core.policy import Policy
from batching.policies.bentoml import BentoML, BentoMLSettings
from batching.policies.fixed import Fixed, FixedSettings
from batching.policies.greedy import Greedy
from batching.policies.litserve import LitServe, LitServeSettings
from batching.policies.mlserver import MLServer, MLServerSettings
from batching.policies.mosec import Mosec, MosecSettings
from batching.policies.nexus import Nexus, NexusSettings
from batching.policies.rayserve import RayServe, RayServeSettings
from batching.policies.shepherd import Shepherd, ShepherdSettings
from batching.policies.shoal import Shoal, ShoalSettings
from batching.policies.symphony import Symphony, SymphonySettings
from batching.policies.tfserving import TFServing, TFServingSettings
from batching.policies.torchserve import TorchServe, TorchServeSettings
from batching.policies.triton import TritonSettings, create_triton


class ProfileError(ValueError):
    """An unknown policy, or a parameter that it does not have or that cannot be.

    Attributes:
        parameter: The parameter; empty if the policy itself is unknown.
        found: What was given.
        expected: What would be right.
    """

    def __init__(self, policy: str, parameter: str, *, found: str, expected: str) -> None:
        where = f"policy {policy}: {parameter}" if parameter else "policy"
        super().__init__(f"{where}: found {found}, expected {expected}")
        self.parameter = parameter
        self.found = found
        self.expected = expected


@dataclass(frozen=True, slots=True)
class NoSettings:
    """A policy without parameters."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How a named policy is made.

    Attributes:
        settings: A dataclass with its parameters and their defaults.
        create: Makes a fresh policy, given settings and the largest batch in rows.
    """

    settings: type[Any]
    create: Callable[[Any, int], Policy]


PROFILES: Mapping[str, Profile] = {
    "shoal": Profile(ShoalSettings, lambda settings, _rows: Shoal(settings)),
    "greedy": Profile(NoSettings, lambda _settings, _rows: Greedy()),
    "single": Profile(NoSettings, lambda _settings, _rows: Greedy(max_requests=1)),
    "fixed": Profile(FixedSettings, lambda settings, _rows: Fixed(settings)),
    "triton": Profile(TritonSettings, create_triton),
    "torchserve": Profile(TorchServeSettings, lambda settings, _rows: TorchServe(settings)),
    "bentoml": Profile(BentoMLSettings, lambda settings, _rows: BentoML(settings)),
    "litserve": Profile(LitServeSettings, lambda settings, _rows: LitServe(settings)),
    "tfserving": Profile(TFServingSettings, lambda settings, _rows: TFServing(settings)),
    "rayserve": Profile(RayServeSettings, lambda settings, _rows: RayServe(settings)),
    "mlserver": Profile(MLServerSettings, lambda settings, _rows: MLServer(settings)),
    "mosec": Profile(MosecSettings, lambda settings, _rows: Mosec(settings)),
    "nexus": Profile(NexusSettings, Nexus),
    "symphony": Profile(SymphonySettings, Symphony),
    "shepherd": Profile(ShepherdSettings, lambda settings, _rows: Shepherd(settings)),
}


def create_policy(
    name: str,
    parameters: Mapping[str, object] | None = None,
    *,
    max_batch_rows: int,
    faithful: bool = True,
    check_shapes: bool = False,
) -> Policy:
    """A fresh policy.

    Args:
        name: A key of `PROFILES`.
        parameters: The profile's own, under their original names.
        max_batch_rows: The largest batch of the model.
        faithful: Keep the original's lateness with timeouts (as simulations do); otherwise timeouts are exact.
        check_shapes: Whether rows may differ in shape, for policies that treat that specially.

    Raises:
        ProfileError: See there.
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise ProfileError(name, "", found=f'"{name}"', expected=f"one of {', '.join(sorted(PROFILES))}")
    known = {field.name for field in fields(profile.settings)}
    given = dict(parameters or {})
    for parameter, value in given.items():
        if parameter not in known or parameter in _FROM_CONTEXT:
            names = ", ".join(sorted(known - _FROM_CONTEXT - _FOR_COMPARISONS)) or "no parameters"
            raise ProfileError(name, parameter, found="an unknown parameter", expected=names)
        if not _is_sane(value):
            raise ProfileError(name, parameter, found=f"{value}", expected="finite numbers of at most 13 digits")
    context = {"faithful": faithful, "check_shapes": check_shapes}
    given |= {parameter: value for parameter, value in context.items() if parameter in known}
    try:
        # As JSON, because strict there means: no text for numbers, no numbers for truth, but lists for tuples.
        settings = TypeAdapter(profile.settings).validate_json(json.dumps(given), strict=True)
        return profile.create(settings, max_batch_rows)
    except ValidationError as error:
        raise _impossible(name, error, known) from error
    except ValueError as error:  # of the policy: its settings do not fit the largest batch
        raise _own_error(name, str(error), known) from error


_FROM_CONTEXT = frozenset({"faithful", "check_shapes"})
# What docs/policies.md keeps for comparisons with the originals; nobody who serves models is offered it.
_FOR_COMPARISONS = frozenset({"timer_slack_us", "exact_clock", "get_us", "answer_us", "poll_quantum_us"})
_LARGEST = 10**13  # microseconds: four months; what is larger is a mistake, and would not fit every clock


def _is_sane(value: object) -> bool:
    """No number, however deep, is infinite, not a number or absurdly large."""
    if isinstance(value, Mapping):
        return all(map(_is_sane, (*value.keys(), *value.values())))
    if isinstance(value, list | tuple):
        return all(map(_is_sane, value))
    return not isinstance(value, int | float) or abs(value) < _LARGEST


def _impossible(name: str, error: ValidationError, known: Collection[str]) -> ProfileError:
    first = error.errors(include_url=False)[0]
    sentence = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return ProfileError(name, _path(first["loc"]), found="nothing", expected="a value: it has no default")
    if first["type"] == "unexpected_keyword_argument":
        return ProfileError(name, _path(first["loc"]), found="an unknown key", expected="no such key")
    if first["loc"] and first["type"] != "value_error":
        expected = sentence.removeprefix("Input should be ")
        return ProfileError(name, _path(first["loc"]), found=json.dumps(first["input"]), expected=expected)
    return _own_error(name, sentence, known, within=_path(first["loc"]))


def _own_error(name: str, sentence: str, known: Collection[str], within: str = "") -> ProfileError:
    """From the sentence of a profile's own check, e.g. "batch_size must be at least 1, found 0"."""
    own = _OWN_SENTENCE.fullmatch(sentence)
    if own:
        parameter = ".".join(filter(None, (within, own["parameter"])))
        return ProfileError(name, parameter, found=own["found"], expected=f"that it {own['law']}")
    first = sentence.split(" ", maxsplit=1)[0]
    parameter = first if first in known else within
    return ProfileError(name, parameter, found="settings that do not fit", expected=f"settings that do: {sentence}")


def _path(steps: Sequence[int | str]) -> str:
    return ".".join(str(step) for step in steps)


_OWN_SENTENCE = re.compile(r"(?P<parameter>\w+) (?P<law>must .*), found (?P<found>.*)", re.DOTALL)
