"""Flags are made from the settings, and values are checked once, by them."""

import re
from pathlib import Path

import pytest
import typer
from pydantic import ValidationError

from gateway.flags import setting_flags, settings_from, with_switch_values
from gateway.settings import Settings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SHOAL_{name.upper()}", raising=False)


def test_there_is_one_flag_for_every_setting() -> None:
    assert [flag.name for flag in setting_flags()] == list(Settings.model_fields)


def test_what_is_not_given_comes_from_the_environment_or_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_HTTP_PORT", "9000")
    monkeypatch.setenv("SHOAL_ID", "of the environment")

    settings = settings_from({"id": "given", "http_port": None, "allow_cpu": False, "model_repository": []})

    assert (settings.id, settings.http_port, settings.metrics_port) == ("given", 9000, 8002)
    assert settings.model_repository == ()


def test_zero_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_METRICS_PORT", "9000")

    settings = settings_from({"http_port": 0, "metrics_port": 0, "drain_lead_secs": 0.0})

    assert (settings.http_port, settings.metrics_port, settings.drain_lead_secs) == (0, 0, 0.0)


@pytest.mark.parametrize("word", ["false", "False", "0", "no", "off"])
def test_a_switch_takes_every_usual_word(word: str) -> None:
    assert settings_from({"strict_readiness": word}).strict_readiness is False


def test_repositories_are_a_list_of_places() -> None:
    settings = settings_from({"model_repository": ["a", Path("b")], "allow_cpu": True})

    assert (settings.model_repository, settings.allow_cpu) == (("a", "b"), True)


@pytest.mark.parametrize(
    ("given", "flag", "text"),
    [
        ({"http_port": 70000}, "--http-port", "less than or equal to 65535, found 70000"),
        ({"log_format": "xml"}, "--log-format", "'default' or 'ISO8601', found 'xml'"),
        ({"request_timeout_secs": 0.0}, "--request-timeout-secs", "greater than 0, found 0.0"),
        ({"request_timeout_secs": float("nan")}, "--request-timeout-secs", "found nan"),
        ({"drain_lead_secs": float("inf")}, "--drain-lead-secs", "found inf"),
        ({"http_address": ""}, "--http-address", "at least 1 character, found ''"),
        ({"http_restricted_api": ("x:k=v",)}, "--http-restricted-api", "found the category 'x', expected one of"),
        ({"grpc_restricted_protocol": ("health",)}, "--grpc-restricted-protocol", "expected <category>,<category>:"),
        ({"http_header_forward_pattern": "("}, "--http-header-forward-pattern", "expected a regular expression"),
        ({"grpc_header_forward_pattern": "*"}, "--grpc-header-forward-pattern", "expected a regular expression"),
    ],
)
def test_a_bad_value_is_refused_with_its_flag(given: dict, flag: str, text: str) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(text)) as caught:
        settings_from(given)

    assert caught.value.param_hint == flag


def test_settings_cannot_be_changed_and_take_no_unknown_names() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().http_port = 1
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Settings(http_prot=1)  # type: ignore[call-arg]


def test_groups_of_the_environment_are_separated_by_semicolons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_HTTP_RESTRICTED_API", "health,metadata:k=v;trace:a=b")

    assert settings_from({}).http_restricted_api == ("health,metadata:k=v", "trace:a=b")


def test_repositories_of_the_environment_are_separated_like_those_of_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_MODEL_REPOSITORY", "a:s3://https://host:9000/bucket/x:b")
    assert settings_from({}).model_repository == ("a", "s3://https://host:9000/bucket/x", "b")

    monkeypatch.setenv("SHOAL_MODEL_REPOSITORY", "")
    monkeypatch.setenv("SHOAL_HTTP_PORT", "")
    assert (settings_from({}).model_repository, settings_from({}).http_port) == ((), 8000)


def test_an_empty_repository_flag_is_not_the_current_directory() -> None:
    with pytest.raises(typer.BadParameter, match="found an empty path"):
        settings_from({"model_repository": [""]})


@pytest.mark.parametrize("switch", ["--allow-cpu", "--exit-on-error"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [("{}", "{}=true"), ("{} --id x", "{}=true --id x"), ("{}=false", "{}=false"), ("{} off --id x", "{} off --id x")],
)
def test_a_bare_switch_means_true(switch: str, given: str, expected: str) -> None:
    assert with_switch_values(given.format(switch).split()) == expected.format(switch).split()


def test_no_arguments_stay_none() -> None:
    assert with_switch_values([]) == []
