"""What `shoal check` tells about broken models: every problem, with its place and the line to write."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from backends.placing import Machine
from backends.ports import Placement
from gateway.repository_check import Report, check_places
from models.findings import Finding, Severity
from models.golden import Golden, describe_photo
from models.preprocessing import Preprocessing
from models.repository import Repository
from tests.gateway.check.broken_models import BATCHED, BROKEN, PBTXT, Broken, Content, fake, onnx_model
from tests.models.builders import FAKE, edited


def write(root: Path, files: dict[str, Content], model: str = "m") -> None:
    for name, content in files.items():
        path = root / model / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        match content:
            case onnx.ModelProto():
                onnx.save(content, path)
            case bytes():
                path.write_bytes(content)
            case str() if not name.endswith("/"):
                path.write_text(content, encoding="utf-8")


def check(root: Path, *, allow_cpu: bool = False) -> Report:
    machine = Machine(gpus={}, defaults=Placement(cores=2, cache_dir=root), allow_cpu=allow_cpu)
    return check_places(Repository([root]).places(), machine)


def errors(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity is Severity.ERROR]


def test_there_are_at_least_forty_broken_models() -> None:
    assert len(BROKEN) >= 40


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_the_only_mistake_is_told_with_its_place_and_the_line_to_write(tmp_path: Path, broken: Broken) -> None:
    write(tmp_path, dict(broken.files))

    (error,) = errors(check(tmp_path))

    place = error.file if error.line is None else f"{error.file}:{error.line}"
    assert (place.removeprefix("m/"), error.field) == (broken.place, broken.field)
    assert broken.found in error.found
    assert broken.expected in error.expected
    assert broken.fix in error.fix or broken.fix in error.expected


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_no_message_shows_a_path_of_the_machine(tmp_path: Path, broken: Broken) -> None:
    write(tmp_path, dict(broken.files))

    findings = check(tmp_path).findings

    assert findings
    assert not any(str(tmp_path) in f"{finding}" for finding in findings)


def test_all_problems_of_a_model_are_told_at_once(tmp_path: Path) -> None:
    config = edited("size: 8", "size: -1").replace("[ 16 ]", "[ 0 ]") + 'name: "n"\nsequence_batching { }\n'
    write(tmp_path, fake(config, '[batching]\npolcy = "x"\noversize = "no"\n[preprocessing]\ncrop = 0'))

    fields = {(error.file, error.field) for error in errors(check(tmp_path))}

    assert fields == {
        *(("m/config.pbtxt", field) for field in ("max_batch_size", "input[0].dims[0]", "output[0].dims[0]")),
        *(("m/config.pbtxt", field) for field in ("name", "sequence_batching")),
        *(("m/shoal.toml", field) for field in ("batching.polcy", "batching.oversize", "preprocessing.crop")),
    }


def test_all_unknown_fields_are_told_at_once_and_that_the_rest_was_not_checked(tmp_path: Path) -> None:
    write(tmp_path, fake('backend: "fake"\ndynamic_batch { a: [ { b: "}" } ] }\nmax_batch_sise: 8\ninput { dim: 0 }'))

    report = check(tmp_path)

    assert [(error.line, error.field) for error in errors(report)] == [
        (2, "dynamic_batch"),
        (3, "max_batch_sise"),
        (4, "input[0].dim"),
    ]
    assert ["were not checked" in finding.found for finding in report.findings] == [False, False, False, True]


def test_dims_and_largest_batch_of_a_model_without_batches_are_told_together(tmp_path: Path) -> None:
    broken = BROKEN["dims without the batch dimension"]
    config = str(broken.files[PBTXT]).replace("max_batch_size: 0", "max_batch_size: 100")
    write(tmp_path, {**broken.files, PBTXT: config})

    fixes = [error.fix for error in errors(check(tmp_path))]

    assert fixes == ["max_batch_size: 0", "dims: [ 1, 3, 512, 512 ]"]


def test_the_line_to_write_makes_a_reshaping_model_one_that_loads(tmp_path: Path) -> None:
    broken = BROKEN["batches of one, with a reshape"]
    write(tmp_path, {**broken.files, PBTXT: str(broken.files[PBTXT]).replace("max_batch_size: 1", broken.fix)})

    assert check(tmp_path).findings == []


def test_a_model_that_does_what_its_errors_say_has_none_left(tmp_path: Path) -> None:
    broken = BROKEN["dims without the batch dimension"]
    write(tmp_path, {**broken.files, PBTXT: str(broken.files[PBTXT]).replace("[ 3, 512", "[ 1, 3, 512")})

    assert check(tmp_path).findings == []


def test_what_has_no_effect_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, fake(FAKE + "optimization {\n  eager_batching: true\n}", **{"01/": ""}))

    report = check(tmp_path)

    assert [(finding.severity, finding.file, finding.line, finding.field) for finding in report.findings] == [
        (Severity.WARNING, "m/01", None, ""),
        (Severity.WARNING, "m/config.pbtxt", 6, "optimization.eager_batching"),
    ]


def test_a_problem_of_one_version_names_it(tmp_path: Path) -> None:
    write(tmp_path, {PBTXT: "version_policy { all { } }", "1/model.onnx": BATCHED, "2/model.onnx": b"junk"})

    (error,) = errors(check(tmp_path))

    assert (error.version, error.file) == (2, "m/2/model.onnx")


def test_a_model_in_two_repositories_is_told(tmp_path: Path) -> None:
    for root in ("a", "b"):
        write(tmp_path / root, fake(FAKE))

    report = check_places(Repository([tmp_path / "a", tmp_path / "b"]).places(), Machine(gpus={}, defaults=Placement()))

    assert ["found in 2 repositories" in finding.found or "in 2 repositories" in finding.found
            for finding in report.findings] == [True]  # fmt: skip


def test_kind_gpu_passes_where_the_cpu_is_allowed(tmp_path: Path) -> None:
    write(tmp_path, onnx_model("max_batch_size: 4\ninstance_group { kind: KIND_GPU }", BATCHED))

    assert errors(check(tmp_path, allow_cpu=True)) == []


def test_a_file_that_is_being_copied_is_told(tmp_path: Path) -> None:
    write(tmp_path, {**fake(FAKE), "1/weights.bin.part": b""})

    (warning,) = check(tmp_path).findings

    assert (warning.severity, warning.file) == (Severity.WARNING, "m/1/weights.bin.part")


def test_labels_that_do_not_count_the_classes_are_a_warning(tmp_path: Path) -> None:
    write(tmp_path, fake(FAKE, 'labels = "labels.txt"', **{"labels.txt": "cat\ndog\n"}))

    (warning,) = check(tmp_path).findings

    assert (warning.file, warning.line, warning.found) == ("m/shoal.toml", 1, "2 labels for 16 classes")


@pytest.mark.parametrize(
    ("config", "side", "expected"),
    [
        pytest.param(
            FAKE, '[batching]\npolicy = "tritn"\nmax_queue_rows = 0', {"batching.policy", "batching.max_queue_rows"},
            id="beside a bad value"),
        pytest.param(
            FAKE, '[batching]\npolicy = "tritn"\n[preprocessing]\ncrop = 0', {"batching.policy", "preprocessing.crop"},
            id="beside a bad crop"),
        pytest.param(
            FAKE, 'labels = "none.txt"\n[batching]\npolicy = "tritn"', {"labels", "batching.policy"},
            id="beside labels"),
        pytest.param(
            FAKE + "sequence_batching { }", '[batching]\npolicy = "tritn"', {"sequence_batching", "batching.policy"},
            id="beside what is not supported"),
        pytest.param(
            FAKE + "instance_group { count: -1 }", '[batching]\npolicy = "tritn"',
            {"instance_group[0].count", "batching.policy"}, id="beside a bad count"),
        pytest.param(
            FAKE, 'labels = "none.txt"\n[preprocessing]\ncrop = 8\nresize = 8', {"labels", "preprocessing.crop"},
            id="a shape beside labels"),
    ],
)  # fmt: skip
def test_no_mistake_hides_another_one(tmp_path: Path, config: str, side: str, expected: set[str]) -> None:
    write(tmp_path, fake(config, side))

    assert {error.field for error in errors(check(tmp_path))} == expected


def test_what_could_not_be_checked_beside_a_mistake_is_told(tmp_path: Path) -> None:
    write(tmp_path, fake(edited("[ 16 ]", "[ 0 ]"), '[batching]\npolicy = "tritn"'))

    (warning,) = [finding for finding in check(tmp_path).findings if finding.severity is Severity.WARNING]

    assert warning.found == "what was not checked further, because of the errors: batching.policy"


def test_a_label_of_a_version_that_is_not_there_is_a_warning_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, fake(FAKE, "[version_labels]\nstable = 1\ncanary = 7"))

    (warning,) = check(tmp_path).findings

    assert (warning.severity, warning.line, warning.field) == (Severity.WARNING, 3, "version_labels.canary")
    assert warning.found == "no effect: version 7 is not among those that are served"


def test_a_version_directory_inside_a_model_is_told_what_the_repository_is(tmp_path: Path) -> None:
    write(tmp_path, fake(FAKE))

    (error,) = errors(check(tmp_path / "m"))

    assert (error.file, error.found) == ("1", "a version of the model 'm'")
    assert error.fix == "name the repository above that model"


@pytest.mark.parametrize("written", ["batchSize", "batch_siz", "BATCH_SIZE"])
def test_a_parameter_that_was_probably_meant_is_the_line_to_write(tmp_path: Path, written: str) -> None:
    write(tmp_path, fake(FAKE, f'[batching]\npolicy = "torchserve"\n[batching.parameters]\n{written} = 4'))

    (error,) = errors(check(tmp_path))

    assert error.fix == "batch_size = 4"
    assert "exact_clock" not in error.expected


def test_an_empty_repository_is_a_warning(tmp_path: Path) -> None:
    (warning,) = check(tmp_path).findings

    assert (warning.severity, warning.model, warning.found) == (Severity.WARNING, "", "no model")


def classifier(root: Path) -> Path:
    config = FAKE.replace("[ 16 ]", "[ 3, 8, 8 ]")
    write(root, fake(config, "[preprocessing]\nresize = 8\ncrop = 8", **{"golden/a.png": b"a picture"}))
    return root / "m"


def golden_record(photograph: bytes) -> str:
    photo = describe_photo("golden/a.png", photograph, np.zeros((3, 8, 8), np.float32), Preprocessing(resize=8, crop=8))
    return Golden(photos=(photo,)).model_dump_json()


def test_golden_photographs_that_are_as_recorded_are_fine(tmp_path: Path) -> None:
    (classifier(tmp_path) / "golden.json").write_text(golden_record(b"a picture"))

    assert check(tmp_path).findings == []


@pytest.mark.parametrize(
    ("record", "found"),
    [(golden_record(b"another"), "the SHA-256"), (golden_record(b"x").replace("a.png", "b.png"), "no such photograph"),
     ("{}", "something else")],
    ids=["another photograph", "no photograph", "no record"],
)  # fmt: skip
def test_golden_photographs_that_would_refuse_the_version_are_errors(tmp_path: Path, record: str, found: str) -> None:
    (classifier(tmp_path) / "golden.json").write_text(record)

    (error,) = errors(check(tmp_path))

    assert error.file == "m/golden.json"
    assert found in error.found
