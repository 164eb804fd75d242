"""MANIFEST.json is read strictly, and its version becomes a number."""

import json

import pytest

from models.archives.manifest import parse_manifest, version_number
from models.errors import ConfigError
from tests.models.archives.builders import manifest

SOURCE = "a.mar/MAR-INF/MANIFEST.json"


def parse(text: str) -> object:
    return parse_manifest(text.encode(), SOURCE)


def test_a_manifest_says_what_the_archive_is() -> None:
    text = manifest("resnet", "2.1", serializedFile="models/resnet.pt", configFile="model-config.yaml")

    found = parse_manifest(text.encode(), SOURCE)

    assert (found.model_name, found.version, found.version_name, found.handler) == (
        "resnet",
        2_001_000,
        "2.1",
        "handler.py",
    )
    assert found.files == {"serializedFile": "models/resnet.pt", "configFile": "model-config.yaml"}
    assert found.notes == ()
    assert found.place_of("modelVersion") == "MANIFEST.json:7"


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("1.0", 1), ("7.0.0", 7), ("0.0", 0), ("1.1", 1_001_000), ("1.2.3", 1_002_003), ("0.1", 1_000)],
)
def test_a_version_text_has_a_number(text: str, number: int) -> None:
    assert version_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "v1", "1.", "01", "1.0.0.0", "1.1000", "1.0-rc1", "-1", "1e3", "latest", "\u0661"]
)
def test_another_version_text_has_none(text: str) -> None:
    assert version_number(text) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (manifest(modelName=None), "MANIFEST.json: model.modelName: found nothing, expected a text that is not empty"),
        (manifest(handler=""), 'MANIFEST.json:6: model.handler: found "", expected a text'),
        (manifest(modelVersion=1.0), "MANIFEST.json:7: model.modelVersion: found 1.0, expected a text"),
        (manifest(version="1.0-rc1"), "MANIFEST.json:7: model.modelVersion: found '1.0-rc1', expected a number, or"),
        (manifest("../evil"), "MANIFEST.json:5: model.modelName: found '../evil', expected up to 255 letters"),
        (manifest("n" * 256), "model.modelName: found 'nnn"),
        (manifest(handler="h.py:f;g"), "model.handler: found 'h.py:f;g', expected a built-in handler, or file.py"),
        (manifest(serializedFile=".."), "model.serializedFile: found the file '..' that leads out of the archive, exp"),
        (manifest(configFile="/etc/passwd"), "MANIFEST.json:8: model.configFile: found the file '/etc/passwd' with an"),
        (manifest(modelFile="a/../../b.py"), "model.modelFile: found the file 'a/../../b.py' that leads out of the"),
        (
            manifest(handler="\ud800"),
            r"MANIFEST.json:6: model.handler: found '\ud800', expected a built-in handler, or",
        ),
        (manifest(handler="h" * 300), "model.handler: found 'hhh"),
        (json.dumps(dict.fromkeys(map(str, range(1001)))), "found an object with 1001 keys, expected at most 1000"),
        (manifest(serializedFile=3), "model.serializedFile: found 3, expected a text"),
        (manifest(envelope="json"), 'model.envelope: found "json", expected no such key: a service envelope is not'),
        ('{"model": 1}', "MANIFEST.json:1: model: found no object, expected an object with modelName"),
        ("{}", "MANIFEST.json: model: found nothing, expected an object"),
        ("[]", "(top level): found no object"),
        ('{"model": {},\n}', "MANIFEST.json:2: (top level): found "),
        ('{"model": {}, "model": {}}', "model: found it more than once, expected each key once"),
        ('{"runtime": "LSP", "model": {}}', 'MANIFEST.json:1: runtime: found "LSP", expected one of python, python3'),
        ('{"model": ' + "9" * 5_000 + "}", "(top level): found a value that cannot be read"),
        ('{"a":' * 100_000, "(top level): found"),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)

    assert sentence in str(refused.value)
    assert str(refused.value).startswith(SOURCE)


def test_a_manifest_in_another_encoding_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"encoding: found the byte 0xe4, expected UTF-8"):
        parse_manifest(b'{"model": "\xe4"}', SOURCE)


def test_unknown_keys_are_noted_with_what_may_be_meant() -> None:
    document = json.loads(manifest(serializdFile="x.pt"))
    text = json.dumps({**document, "license": "MIT", "owner": "me"}, indent=2)

    assert parse_manifest(text.encode(), SOURCE).notes == (
        f"{SOURCE}:12: owner: has no effect: unknown",
        f"{SOURCE}:8: model.serializdFile: has no effect: unknown; did you mean serializedFile?",
    )
