"""A model store: which models its archives make, what is told of each, and when one counts as changed."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from models.archives.folders import PrivateFolders
from models.archives.known_names import KnownNames
from models.archives.manifest import MANIFEST
from models.archives.store import archive_places
from models.effective import effective_tables
from models.provenance import leaves
from models.tensors import DataType
from tests.models.archives.builders import (
    configured,
    entries_of,
    entry_of,
    files,
    folders_in,
    manifest,
    problem_of,
    spec_of,
    write_directory,
    write_tar,
    write_zip,
)

Write = Callable[[Path, Mapping[str, str]], Path]
FORMS: dict[str, Write] = {
    "other.mar": write_zip,
    "tarred.mar": write_tar,
    "other.tar.gz": write_tar,
    "flat.tgz": lambda path, content: write_tar(path, content, prefix=""),
    "dotted.tgz": lambda path, content: write_tar(path, content, prefix="./"),
    "directory": write_directory,
}


@pytest.mark.parametrize(("file_name", "write"), FORMS.items(), ids=FORMS)
def test_every_form_of_an_archive_is_a_model_with_the_manifests_name(store: Path, file_name: str, write: Write) -> None:
    write(store / file_name, files(manifest("resnet", "3.0")))

    spec = spec_of(store)

    assert (spec.name, spec.version, spec.version_name, spec.backend) == ("resnet", 3, "3.0", "torchserve")
    assert (spec.file.parent.parent / "handler.py").is_file()
    assert spec.file.as_posix().endswith(MANIFEST)
    assert [(tensor.name, tensor.data_type, tensor.dims) for tensor in (*spec.inputs, *spec.outputs)] == [
        ("data", DataType.BYTES, (1,)),
        ("response", DataType.BYTES, (1,)),
    ]


def test_what_is_no_archive_is_no_model(store: Path) -> None:
    write_directory(store / "triton", {"config.pbtxt": "", "1/model.py": ""})
    write_zip(store / ".hidden.mar", files())
    (store / "README.md").write_text("text")
    (store / "directory.mar").mkdir()

    assert archive_places(store, PrivateFolders(store.parent / "work"), KnownNames()) == ()
    assert not (store.parent / "work").exists()


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        ("handler.py", "handler.py"),
        ("src/handler.py:run", "handler.py:run"),
        ("handler", "handler.py"),
        ("handler:run", "handler.py:run"),
        ("image_classifier", "image_classifier"),
    ],
)
def test_the_handler_is_a_file_of_the_archive_or_a_built_in(store: Path, handler: str, found: str) -> None:
    write_zip(store / "m.mar", files(manifest(handler=handler, serializedFile="model.pt"), model__pt="weights"))

    assert spec_of(store).parameters == {"handler": found, "serialized_file": "model.pt"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"handler.py": ""}, f"found no {MANIFEST} in it, expected a file of torch-model-archiver"),
        ({MANIFEST: "{"}, f"m.mar/{MANIFEST}:1: (top level): found "),
        ({MANIFEST: manifest()}, f"m.mar/{MANIFEST}:6: model.handler: found no file 'handler.py', expected it in the"),
        (files(manifest(modelFile="net.py")), f"{MANIFEST}:8: model.modelFile: found no file 'net.py'"),
        (configured("batchSize: x"), "m.mar/model-config.yaml:1: batchSize: found 'x'"),
    ],
)
def test_a_broken_archive_has_a_problem_and_hides_no_other(
    store: Path, content: Mapping[str, str], sentence: str
) -> None:
    write_zip(store / "m.mar", content)
    write_zip(store / "good.mar", files(manifest("good")))

    good, broken = entries_of(store).values()

    assert (good.name, good.problems, len(good.versions)) == ("good", (), 1)
    assert (broken.name, broken.versions) == ("m", ())
    assert sentence in str(broken.problems[0])


def test_archives_of_one_name_are_versions_with_their_texts_as_labels(store: Path) -> None:
    for version in ("1.0", "2", "3.1"):
        write_zip(store / f"resnet-{version}.mar", files(manifest("resnet", version)))

    entry = entry_of(store)

    assert [spec.version for spec in entry.versions] == [1, 2, 3_001_000]
    assert entry.version_labels == {"1.0": 1, "3.1": 3_001_000}
    assert entry.notes == ()


def test_a_broken_version_leaves_the_others(store: Path) -> None:
    write_zip(store / "a.mar", configured("batchSize: 0"))
    write_zip(store / "b.mar", files(manifest(version="2.0")))

    entry = entry_of(store)

    assert ([spec.version for spec in entry.versions], entry.broken) == ([2], (1,))
    assert len(entry.problems) == 1


def test_two_archives_with_one_version_are_both_refused(store: Path) -> None:
    write_zip(store / "a.mar", files(manifest(version="1")))
    write_zip(store / "b.mar", files(manifest(version="1.0")))

    assert problem_of(store) == "m: found version 1 in a.mar (1), b.mar (1.0), expected it in one; remove the others"
    assert entry_of(store).broken == (1,)


def test_it_is_told_when_the_highest_number_is_not_the_newest_version(store: Path) -> None:
    write_zip(store / "a.mar", files(manifest(version="1.1")))
    write_zip(store / "b.mar", files(manifest(version="2.0")))

    (note,) = entry_of(store).notes

    assert note.startswith("m: requests without a version get 1.1 (number 1001000, the highest), not 2.0")


def test_the_shown_configuration_says_what_is_done_and_where_it_comes_from(store: Path) -> None:
    write_zip(store / "m.mar", configured("minWorkers: 2\ndeviceIds: [0]\nbatchSize: 4\nmaxBatchDelay: 7"))

    spec = spec_of(store)

    assert spec.config["max_batch_size"] == 4
    assert spec.config["dynamic_batching"] == {
        "preferred_batch_size": [4], "max_queue_delay_microseconds": 7000, "preserve_ordering": False,
        "priority_levels": 0, "default_priority_level": 0, "priority_queue_policy": {},
    }  # fmt: skip
    assert spec.config["parameters"] == {"handler": {"string_value": "handler.py"}}
    assert {path: source for path, source in spec.sources.items() if source != "default"} == {
        "name": "MANIFEST.json:5",
        "parameters.handler.string_value": "MANIFEST.json:6",
        "instance_group[0].count": "model-config.yaml:1",
        "instance_group[0].kind": "model-config.yaml:2",
        "instance_group[0].gpus[0]": "model-config.yaml:2",
        "max_batch_size": "model-config.yaml:3",
        "dynamic_batching.preferred_batch_size[0]": "model-config.yaml:3",
        "shoal.batching.parameters.batch_size": "model-config.yaml:3",
        "dynamic_batching.max_queue_delay_microseconds": "model-config.yaml:4",
        "shoal.batching.parameters.max_batch_delay_ms": "model-config.yaml:4",
    }


def test_every_value_that_is_shown_has_a_source(store: Path) -> None:
    write_zip(store / "m.mar", files())

    spec = spec_of(store)

    shoal = {f"shoal.{path}" for path, _ in leaves(effective_tables(spec))}
    assert spec.sources.keys() == {path for path, _ in leaves(spec.config)} | shoal


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        ("object_detector", "found TorchServe's built-in handler 'object_detector', expected 'image_classifier'"),
        ("text_classifier", "pack a handler of your own"),
        ("image_segmenter", "pack a handler of your own"),
        ("image_clasifier", "which is no file of the archive, expected 'image_classifier', the only built-in one that"),
        ("image_clasifier", "did you mean 'image_classifier'?"),
    ],
)
def test_a_handler_that_cannot_be_served_is_refused_while_reading(store: Path, handler: str, words: str) -> None:
    write_zip(store / "m.mar", files(manifest(handler=handler)))

    problem = problem_of(store)

    assert problem.startswith(f"m.mar/{MANIFEST}:6: model.handler: ")
    assert words in problem
    assert handler == "image_clasifier" or "did you mean" not in problem


def changed_file(store: Path) -> None:
    write_zip(store / "m.mar", files(model__pt="weights"))


def another_version(store: Path) -> None:
    write_zip(store / "n.mar", files(manifest(version="2.0")))


def changed_settings(store: Path) -> None:
    (store / "config.properties").write_text("job_queue_size=7")


def changed_inside(store: Path) -> None:
    file = write_directory(store / "unpacked", {"handler.py": "# other"}) / "handler.py"
    os.utime(file, ns=(0, 0))


def removed_file(store: Path) -> None:
    (store / "m.mar").unlink()


@pytest.mark.parametrize("change", [changed_file, another_version, changed_settings, changed_inside, removed_file])
def test_a_change_of_anything_changes_the_fingerprint(store: Path, change: Callable[[Path], None]) -> None:
    (store / "config.properties").write_text("")
    write_zip(store / "m.mar", files())
    write_directory(store / "unpacked", files(manifest(version="3.0")))
    (before,) = archive_places(store, PrivateFolders(store.parent / "work"), KnownNames())
    seen, again = before.fingerprint(), before.fingerprint()

    change(store)
    (after,) = archive_places(store, PrivateFolders(store.parent / "work"), KnownNames())

    assert seen == again != after.fingerprint()


def test_a_removed_archive_changes_the_fingerprint_of_a_place_that_is_still_held(store: Path) -> None:
    write_zip(store / "m.mar", files())
    (place,) = archive_places(store, PrivateFolders(store.parent / "work"), KnownNames())
    before = place.fingerprint()

    (store / "m.mar").unlink()

    assert place.fingerprint() != before
    assert [str(problem) for problem in place.read().problems] == ["found no m.mar in the store, expected it there"]


def test_an_unpacked_archive_that_is_being_copied_is_unfinished(store: Path) -> None:
    write_directory(store / "m", {**files(), "model.pt.part": ""})
    write_zip(store / "n.mar", files(manifest("n")))

    places = archive_places(store, PrivateFolders(store.parent / "work"), KnownNames())

    assert [place.unfinished() for place in places] == ["m/model.pt.part", ""]


def test_a_change_that_leaves_the_content_leaves_the_specification(store: Path) -> None:
    archive = write_zip(store / "m.mar", files())
    before = spec_of(store)

    os.utime(archive, ns=(0, 0))

    assert spec_of(store) == before


def test_a_configuration_in_a_load_request_is_refused(store: Path) -> None:
    write_zip(store / "m.mar", files())
    (place,) = archive_places(store, PrivateFolders(store.parent / "work"), KnownNames())

    (problem,) = place.read(override='{"max_batch_size": 4}').problems

    assert str(problem) == "m: found a configuration in the load request, expected none for an archive"


def test_a_name_that_changes_in_place_is_noticed(store: Path) -> None:
    names = KnownNames()
    write_zip(store / "m.mar", files(manifest("first")))
    assert list(entries_of(store, names)) == ["first"]

    write_zip(store / "m.mar", files(manifest("second", description="another file")))

    assert list(entries_of(store, names)) == ["second"]


def test_a_model_keeps_its_name_while_its_archive_is_copied_over(store: Path) -> None:
    archive = write_zip(store / "file.mar", files(manifest("resnet")))
    names = KnownNames()
    assert list(entries_of(store, names)) == ["resnet"]

    archive.write_bytes(archive.read_bytes()[:100])

    ((name, entry),) = entries_of(store, names).items()
    assert (name, entry.versions) == ("resnet", ())
    assert "file.mar: found a damaged archive" in str(entry.problems[0])


def test_a_workflow_archive_is_told_to_be_skipped(store: Path) -> None:
    write_zip(store / "m.mar", files())
    (store / "flow.war").write_text("")

    assert entry_of(store).notes == ("flow.war: skipped, workflow archives are not served",)


def test_an_unpacked_archive_without_its_manifest_is_a_broken_archive(store: Path) -> None:
    directory = write_directory(store / "m", files())
    (directory / MANIFEST).unlink()

    assert f"m: found no {MANIFEST} in it" in problem_of(store)


def test_workers_with_another_directory_find_what_a_relative_path_was_given_for(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_zip(store / "m.mar", files())
    monkeypatch.chdir(store.parent)

    (place,) = archive_places(Path("store"), PrivateFolders(Path("work")), KnownNames())

    assert place.read().versions[0].file.is_relative_to(store.parent / "work")


def test_an_archive_that_cannot_even_be_opened_hides_no_other(store: Path) -> None:
    write_zip(store / "good.mar", files(manifest("good")))
    (store / "broken.mar").write_bytes(b"PK\x05\x06" + b"\xff" * 18)

    broken, good = entries_of(store).values()

    assert (broken.name, len(broken.problems), len(good.versions)) == ("broken", 1, 1)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (os.mkfifo, "file: found a pipe, expected a plain file"),
        (lambda file: file.symlink_to("/dev/zero"), "file: found a device, expected a plain file"),
        (lambda file: os.truncate(os.open(file, os.O_CREAT | os.O_WRONLY), 3 << 30), "size: found more than 1048576 b"),
    ],
    ids=["pipe", "device", "3 GiB"],
)
def test_an_unpacked_archive_is_not_trusted_before_it_is_checked(
    store: Path, make: Callable[[Path], object], sentence: str
) -> None:
    write_zip(store / "good.mar", files(manifest("good")))
    (store / "m" / MANIFEST).parent.mkdir(parents=True)
    make(store / "m" / MANIFEST)

    good, broken = entries_of(store).values()

    assert (good.name, len(good.versions)) == ("good", 1)
    assert str(broken.problems[0]).startswith(f"m/{MANIFEST}: {sentence}")
    assert len(folders_in(store.parent / "work")) == 1


def test_an_archive_whose_file_name_is_not_text_has_a_problem_and_hides_no_other(store: Path) -> None:
    write_zip(store / "good.mar", files(manifest("good")))
    write_zip(store / os.fsdecode(b"b\xff.mar"), files(manifest("bad")))

    broken, good = entries_of(store).values()

    assert (broken.name, good.name, len(good.versions)) == ("b_", "good", 1)
    assert str(broken.problems[0]) == (
        r"'b\udcff.mar': found a file whose name is not UTF-8, expected a plain name; rename it"
    )


def test_files_of_the_manifest_are_found_with_their_directories_or_without(store: Path) -> None:
    names = {"serializedFile": "there/model.pt", "modelFile": "src/net.py", "configFile": "./conf/my.yaml"}
    content = {"there/model.pt": "weights", "net.py": "", "conf/my.yaml": "batchSize: 8"}
    write_zip(store / "m.mar", {**files(manifest(**names)), **content})

    spec = spec_of(store)

    assert spec.max_batch_rows == 8
    assert spec.parameters["serialized_file"] == "there/model.pt"
    assert spec.parameters["model_file"] == "net.py"


def test_the_names_of_archives_that_are_gone_are_forgotten(store: Path) -> None:
    names = KnownNames()
    write_zip(store / "m.mar", files(manifest("resnet")))
    assert list(entries_of(store, names)) == ["resnet"]
    (store / "m.mar").unlink()
    assert entries_of(store, names) == {}

    (store / "m.mar").write_bytes(b"broken")

    assert list(entries_of(store, names)) == ["m"]
