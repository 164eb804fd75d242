"""config.properties of a store: honoured for each model, and a mistake in it is told with file and line."""

import os
from pathlib import Path

import pytest

from models.archives.java_properties import parse_properties
from tests.models.archives.builders import (
    configured,
    entries_of,
    entry_of,
    files,
    manifest,
    problem_of,
    spec_of,
    write_zip,
)

# What people write in practice: one name for the archive, another for the model, and JSON over several lines.
MARKUP = """# of the server
inference_address=http://0.0.0.0:8080
load_models=markuplm=MarkupLM.mar
models={\\
  "markuplm": {\\
    "1.0": {\\
        "defaultVersion": true,\\
        "minWorkers": 1,\\
        "maxWorkers": 3,\\
        "batchSize": 5,\\
        "maxBatchDelay": 200,\\
        "responseTimeout": 120\\
    }\\
  }\\
}
"""


def write_store(store: Path, text: str) -> Path:
    (store / "config.properties").write_text(text)
    return write_zip(store / "MarkupLM.mar", files(manifest("markup")))


def test_settings_of_a_model_are_honoured_and_their_places_known(store: Path) -> None:
    write_store(store, MARKUP)

    spec = spec_of(store)

    assert (spec.name, spec.max_batch_rows) == ("markuplm", 5)
    assert spec.batching.parameters["max_batch_delay_ms"] == 200
    assert spec.instance_groups[0].count == 1
    assert spec.sources["max_batch_size"] == "config.properties:10"
    assert entry_of(store).notes == (
        "config.properties:2: inference_address: has no effect: the server listens where --http-address and "
        "--http-port say",
        "config.properties:9: maxWorkers: 3 has no effect: workers are not added when there is more to do; minWorkers "
        "of them run",
    )


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"batchSize"', '"batchsize"', ":10: models.markuplm.1.0.batchsize: found an unknown key, expected batchSize"),
        ('"batchSize"', '"colour"', ":10: models.markuplm.1.0.colour: found an unknown key, expected a key of model-"),
        ('"batchSize": 5', '"batchSize": 0', ":10: models.markuplm.1.0.batchSize: found 0, expected a whole number"),
        ('"1.0"', '"1"', ':6: models.markuplm.1: found version "1", expected the version of an archive, "1.0"'),
        ("true", "1", ":7: models.markuplm.1.0.defaultVersion: found 1, expected true or false"),
        ('"maxWorkers": 3', '"maxWorkers" 3', ":9: models: found Expecting ':' delimiter, expected JSON"),
        ('"1.0": {', '"1.0": [{', "models: found Expecting"),
        (
            '{\\\n    "1.0"',
            '{"2.0": 1,\\\n    "1.0"',
            "config.properties:5: models.markuplm.2.0: found 1, expected tables",
        ),
        ("load_models", "load_model", ":3: load_model: found an unknown key, expected load_models"),
        ("=MarkupLM.mar", "=Markup.mar", "config.properties:3: load_models: found no Markup.mar in the store"),
        ("=MarkupLM.mar", "=https://example.com/m.mar", ":3: load_models: found 'https://example.com/m.mar', expected"),
        ("=MarkupLM.mar", "=../m.mar", ":3: load_models: found '../m.mar', expected the name of an archive in the"),
        ("=MarkupLM.mar", "=b\\ud800.mar", r":3: load_models: found 'b\ud800.mar', expected the name of an archive"),
        ("=MarkupLM.mar", "=b\\u0000.mar", r":3: load_models: found 'b\x00.mar', expected the name of an archive"),
        ("=MarkupLM.mar", "=" + "b" * 300, ":3: load_models: found 'bbb"),
        (
            "=markuplm=MarkupLM.mar",
            "=a/b=MarkupLM.mar",
            ":3: load_models: found the model's name 'a/b', expected up to 255",
        ),
        ("=markuplm=MarkupLM.mar", "=x y=MarkupLM.mar", ":3: load_models: found the model's name 'x y', expected"),
        ("=markuplm=MarkupLM.mar", "==MarkupLM.mar", ":3: load_models: found the model's name '', expected"),
        (
            "=markuplm=MarkupLM.mar",
            "=\\ud800=MarkupLM.mar",
            r":3: load_models: found the model's name '\ud800', expected",
        ),
        ('"batchSize"', r'"batch\\u001bSize"', r"models.markuplm.1.0.batch\x1bSize: found an unknown key, expected"),
        ("# of", "job_queue_size=many\n#", ":1: job_queue_size: found 'many', expected a whole number from 1"),
        ("# of", "limit_max_image_pixels=no\n#", ":1: limit_max_image_pixels: found 'no', expected true or false"),
        ("# of", "service_envelope=kservev2\n#", ":1: service_envelope: found 'kservev2', expected no such key"),
        ("# of", "defaultWorkersPerModel=2\n#", ":1: defaultWorkersPerModel: found an unknown key, expected default_w"),
        ("# of", "#" + "x" * (1 << 20), "config.properties: size: found more than 1048576 bytes"),
    ],
)
def test_a_mistake_is_a_problem_with_file_and_line(store: Path, old: str, new: str, sentence: str) -> None:
    assert old in MARKUP
    write_store(store, MARKUP.replace(old, new, 1))

    problems = [str(problem) for entry in entries_of(store).values() for problem in entry.problems]

    assert [problem for problem in problems if sentence in problem], problems


def test_a_mistake_for_one_model_leaves_the_others(store: Path) -> None:
    write_zip(store / "a.mar", files(manifest("a")))
    write_zip(store / "b.mar", files(manifest("b")))
    (store / "config.properties").write_text('models={"a": {"1.0": {"batchSize": 0}}}')

    a, b = entries_of(store).values()

    assert (a.versions, len(a.problems), a.broken) == ((), 1, (1,))
    assert (len(b.versions), b.problems) == (1, ())


def test_the_archive_goes_before_the_store_and_the_model_before_all_models(store: Path) -> None:
    write_zip(store / "a.mar", configured("batchSize: 8"))
    text = (
        "default_response_timeout=30\ndefault_startup_timeout=31\njob_queue_size=7\ndefault_workers_per_model=4\n"
        'models={"m": {"1.0": {"batchSize": 2, "responseTimeout": 40}}}\n'
    )
    (store / "config.properties").write_text(text)

    spec = spec_of(store)

    assert (spec.max_batch_rows, spec.sources["max_batch_size"]) == (8, "model-config.yaml:1")
    assert (spec.execution.step_timeout_s, spec.execution.load_timeout_s) == (40.0, 31.0)
    assert spec.batching.parameters["job_queue_size"] == 7
    assert (spec.instance_groups[0].count, spec.sources["instance_group[0].count"]) == (4, "config.properties:4")


def test_only_what_is_named_is_loaded(store: Path) -> None:
    for name in ("a", "b", "c"):
        write_zip(store / f"{name}.mar", files(manifest(name)))
    (store / "config.properties").write_text("load_models=c.mar, x=b.mar")

    assert list(entries_of(store)) == ["c", "x"]


@pytest.mark.parametrize("value", ["", "load_models=all", "load_models=ALL", "load_models="])
def test_without_names_everything_is_loaded(store: Path, value: str) -> None:
    write_zip(store / "a.mar", files())
    (store / "config.properties").write_text(value)

    assert list(entries_of(store)) == ["m"]


@pytest.mark.parametrize("place", ["config.properties", "config/config.properties"])
def test_a_file_beside_the_store_counts_if_it_names_the_store(store: Path, place: str) -> None:
    write_zip(store / "a.mar", files())
    file = store.parent / place
    file.parent.mkdir(exist_ok=True)

    file.write_text("model_store=/models/store\njob_queue_size=7")
    assert spec_of(store).batching.parameters["job_queue_size"] == 7

    file.write_text("model_store=/models/other\njob_queue_size=7")
    assert spec_of(store).batching.parameters["job_queue_size"] == 100


def test_what_has_no_effect_is_told_once(store: Path) -> None:
    write_zip(store / "a.mar", files(manifest("a")))
    write_zip(store / "b.mar", files(manifest("b")))
    text = 'number_of_gpu=1\nmy_own=2\nmodels={"c": {"1.0": {}}, "b": {"1.0": {"marName": "b.mar"}, "9": {}}}'
    (store / "config.properties").write_text(text)

    a, b = entries_of(store).values()

    assert a.notes == (
        "config.properties:1: number_of_gpu: has no effect: all GPUs that the server sees are used: choose them with "
        "CUDA_VISIBLE_DEVICES, or deviceIds",
        "config.properties:2: my_own: has no effect: unknown",
        "config.properties:3: models.c: has no effect: no such model here",
    )
    assert b.notes == (
        "config.properties:3: models.b.9: has no effect: there is no such version here",
        "config.properties:3: models.b.1.0.marName: has no effect: archives are found by what their manifests say",
    )


def test_a_default_version_that_is_not_the_highest_is_told(store: Path) -> None:
    for version in ("1.0", "2.0"):
        write_zip(store / f"{version}.mar", files(manifest(version=version)))
    (store / "config.properties").write_text('models={"m": {"1.0": {"defaultVersion": true}, "2.0": {}}}')

    (note,) = entry_of(store).notes

    assert note.startswith("m: requests without a version get 2.0 (number 2, the highest), not 1.0")


def test_flags_for_handlers_are_parameters(store: Path) -> None:
    write_zip(store / "a.mar", files())
    (store / "config.properties").write_text("limit_max_image_pixels=False\ndecode_input_request=true")

    parameters = spec_of(store).parameters

    assert (parameters["limit_max_image_pixels"], parameters["decode_input_request"]) == ("false", "true")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", [("a", "b", 1)]),
        ("\n# c\n! d\n  a : b = c ", [("a", "b = c ", 4)]),
        ("a b", [("a", "b", 1)]),
        ("a", [("a", "", 1)]),
        ("a=1\\\n   2\\\n3\nb=4", [("a", "123", 1), ("b", "4", 4)]),
        ("a\\=b=\\u0041\\t\\x", [("a=b", "A\tx", 1)]),
        ("a=1\\\\\nb=2", [("a", "1\\", 1), ("b", "2", 2)]),
        ("a=1\\", [("a", "1", 1)]),
        ("a=1\r\nb=2\rc=3", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]),
    ],
)
def test_the_format_is_that_of_java(text: str, found: list[tuple[str, str, int]]) -> None:
    assert [(each.key, each.value, each.line) for each in parse_properties(text)] == found


def test_a_character_of_a_value_over_several_lines_has_its_line() -> None:
    (found,) = parse_properties("# first\nkey=ab\\\n   cd\\\nef")

    assert [found.line_at(position) for position in range(6)] == [2, 2, 3, 3, 4, 4]


def test_a_default_version_that_is_not_there_is_told_with_its_line(store: Path) -> None:
    write_zip(store / "m.mar", files())
    (store / "config.properties").write_text('\nmodels={"m": {"1.0": {}, "2.0": {"defaultVersion": true}}}')

    notes = entry_of(store).notes

    expected = "config.properties:2: models.m.2.0.defaultVersion: has no effect: version 2.0 of m cannot be served"
    assert any(note.startswith(expected) for note in notes)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("model_store=/somewhere/else", "its model_store is 'else', not 'store'; put it into the store"),
        ("load_models=all", "it has no model_store; put it into the store"),
    ],
)
def test_a_file_beside_a_store_of_another_name_is_told(store: Path, line: str, reason: str) -> None:
    write_zip(store / "m.mar", files())
    (store.parent / "config.properties").write_text(line)

    (note,) = entry_of(store).notes

    assert note == f"config.properties: has no effect: it is beside the store and {reason}"


def test_the_server_is_ready_without_a_file_that_only_load_models_names(store: Path) -> None:
    write_zip(store / "m.mar", files())
    (store / "config.properties").write_text("load_models=m.mar,gone.mar")

    entries = entries_of(store)

    assert (entries["m"].required, entries["gone"].required) == (None, False)
    assert "load_models: found no gone.mar in the store" in str(entries["gone"].problems[0])


def test_a_name_that_is_refused_is_told_under_one_that_can_be_asked_for(store: Path) -> None:
    write_zip(store / "good.mar", files(manifest("good")))
    (store / "config.properties").write_text("load_models=good.mar,b\\ud800.mar,a/b=good.mar")

    entries = entries_of(store)

    assert list(entries) == ["a_b", "b_", "good"]
    assert all(len(entry.problems) == 2 for entry in entries.values())


def test_a_pipe_in_place_of_the_file_is_a_problem(store: Path) -> None:
    write_zip(store / "good.mar", files(manifest("good")))
    os.mkfifo(store / "config.properties")

    assert problem_of(store) == "config.properties: file: found a pipe, expected a plain file"
