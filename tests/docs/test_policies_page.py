"""docs/policies.md beside the code: its tables of knobs, its pictures, its lists of policies and reasons."""

import re
import shlex
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import pytest

from batching.core.actions import RefusalReason
from batching.core.batches import CloseReason
from batching.core.errors import refusal_error
from batching.policies.triton_queue import QueuePolicy
from batching.profiles import PROFILES
from loadtest.timeline import picture_of
from models.spec import BatchingSpec
from tests.docs.pages import ROOT, table_of

PAGE = ROOT / "docs/policies.md"
TEXT = PAGE.read_text()
_PICTURE = re.compile(r"<!-- timeline: (.*?) -->\n```text\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
PICTURES = [pytest.param(*picture.groups(), id=picture[1]) for picture in _PICTURE.finditer(TEXT)]
SET_ELSEWHERE = {"faithful", "check_shapes"}  # by [batching] of shoal.toml, and by the model's dimensions

each_policy = pytest.mark.parametrize("policy", PROFILES)


def knobs_of(settings: type[Any]) -> list[list[str]]:
    return [[field.name, shown(field)] for field in fields(settings) if field.name not in SET_ELSEWHERE]


def shown(field: Field[Any]) -> str:
    """A default as the page writes it: as TOML, without quotes."""
    default = field.default if field.default_factory is MISSING else field.default_factory()
    if default is MISSING:
        return "required"
    if default is None:
        return "none"
    if is_dataclass(default) or default == {}:
        return "{}"
    if isinstance(default, bool):
        return str(default).lower()
    return str(list(default)) if isinstance(default, tuple) else str(default)


def section(heading: str) -> str:
    return re.split(r"^#{2,3} ", TEXT.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_policy_has_a_section_and_every_section_is_a_policy() -> None:
    chapter = TEXT.partition("\n## The policies\n")[2].partition("\n## ")[0]

    assert set(re.findall(r"^### (.*)$", chapter, re.MULTILINE)) == set(PROFILES)


@each_policy
def test_every_knob_of_a_policy_is_listed_with_its_default(policy: str) -> None:
    listed = [[name, default] for name, _, default, _ in table_of(PAGE, policy)]

    assert listed == knobs_of(PROFILES[policy].settings)


def test_every_knob_of_tritons_queue_policies_is_listed_with_its_default() -> None:
    listed = [[name, default] for name, _, default, _ in table_of(PAGE, "Queue policies")]

    assert listed == knobs_of(QueuePolicy)


@each_policy
def test_a_section_has_origin_picture_and_price(policy: str) -> None:
    text = section(policy)

    assert text.startswith("\n*Origin: ")
    assert f"<!-- timeline: {policy}" in text
    assert "\nWhen it hurts: " in text


@pytest.mark.parametrize(("command", "drawn"), PICTURES)
def test_a_picture_is_what_the_simulator_draws(command: str, drawn: str) -> None:
    policy, *settings = shlex.split(command)

    assert drawn == picture_of(policy, settings).draw()


def test_every_policy_is_compared() -> None:
    assert {policy for policy, *_ in table_of(PAGE, "Side by side")} == set(PROFILES)


def test_every_policy_with_two_ways_to_keep_timeouts_is_in_their_table() -> None:
    two_ways = {
        name for name, profile in PROFILES.items() if "faithful" in {field.name for field in fields(profile.settings)}
    }

    assert {policy for policy, *_ in table_of(PAGE, "Timeouts and `faithful`")} == two_ways


def test_the_policy_of_a_model_that_says_nothing_is_the_default() -> None:
    *_, (_, otherwise) = table_of(PAGE, "Which policy a model gets")

    assert otherwise == BatchingSpec().policy


def test_every_reason_for_a_batchs_size_is_explained() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ", section("What the metrics say"), re.MULTILINE)

    assert set(listed) == {reason.value for reason in CloseReason}


def test_every_reason_for_no_answer_is_listed_with_its_error() -> None:
    listed = re.findall(r"^\| (\w+) \| `(\w+)` \| ", section("What the metrics say"), re.MULTILINE)

    assert dict(listed) == {
        reason.value: type(refusal_error(reason, admitted=True)).__name__ for reason in RefusalReason
    }
