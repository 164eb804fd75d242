"""Instance groups: kinds, counts, devices, resources, and how each impossible one is refused."""

from pathlib import Path

import pytest

from models.model_directory import read_model
from models.spec import DeviceKind, InstanceGroup, Resource
from tests.models.builders import FAKE, INPUTS, OUTPUTS, identity_model, refusal_of, spec_of, write_model

PYTHON = f'backend: "python" max_batch_size: 8 {INPUTS} {OUTPUTS}\n'


def python_model(root: Path, groups: str) -> Path:
    directory = write_model(root, PYTHON + groups)
    (directory / "1" / "model.py").touch()
    return directory


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("{ }", InstanceGroup(name="m_0", kind=DeviceKind.AUTO, count=1, is_default_count=True)),
        ("{ kind: KIND_CPU count: 1 }", InstanceGroup(name="m_0", kind=DeviceKind.CPU, count=1)),
        ("{ count: 0 }", InstanceGroup(name="m_0", kind=DeviceKind.AUTO, count=1, is_default_count=True)),
        ("{ gpus: [ 1 ] count: 2 }", InstanceGroup(name="m_0", kind=DeviceKind.AUTO, count=2, gpus=(1,))),
        (
            '{ name: "fast" kind: KIND_GPU gpus: [ 0, 2 ] count: 3 }',
            InstanceGroup(name="fast", kind=DeviceKind.GPU, count=3, gpus=(0, 2)),
        ),
        (
            '{ rate_limiter { priority: 2 resources { name: "R" count: 4 global: true }'
            ' resources { name: "S" count: 1 } } }',
            InstanceGroup(
                name="m_0",
                kind=DeviceKind.AUTO,
                count=1,
                is_default_count=True,
                resources=(Resource(name="R", count=4, shared=True), Resource(name="S", count=1)),
                priority=2,
            ),
        ),
    ],
)
def test_a_group_becomes_plain_values(tmp_path: Path, group: str, expected: InstanceGroup) -> None:
    spec = spec_of(write_model(tmp_path, f"{FAKE}instance_group [ {group} ]"))
    assert spec.instance_groups == (expected,)


def test_without_groups_there_is_one_named_after_the_model(tmp_path: Path) -> None:
    spec = spec_of(write_model(tmp_path, FAKE))
    assert spec.instance_groups == (
        InstanceGroup(name="m", kind=DeviceKind.AUTO, count=1, is_default_count=True),
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "count"), [("KIND_AUTO", 2), ("KIND_CPU", 2), ("KIND_GPU", 1)])
def test_onnx_models_get_two_instances_by_default_unless_on_a_gpu(tmp_path: Path, kind: str, count: int) -> None:
    config = f'platform: "onnxruntime_onnx" instance_group {{ kind: {kind} }}'
    (group,) = spec_of(write_model(tmp_path, config, model=identity_model())).instance_groups
    assert (group.kind.value, group.count, group.is_default_count) == (kind, count, True)


def test_the_shown_config_has_no_automatic_kind_and_all_names_and_counts(tmp_path: Path) -> None:
    config = FAKE + "instance_group [ { gpus: 1 }, { kind: KIND_GPU gpus: 1 } ]"
    first, second = spec_of(write_model(tmp_path, config)).config["instance_group"]  # type: ignore[misc]
    assert (first["name"], first["kind"], first["count"], first["gpus"]) == ("m_0", "KIND_CPU", 1, [])  # type: ignore[has-type]
    assert (second["name"], second["kind"], second["count"], second["gpus"]) == ("m_1", "KIND_GPU", 1, [1])  # type: ignore[has-type]


def test_the_code_of_a_python_model_may_choose_its_devices(tmp_path: Path) -> None:
    (group,) = spec_of(python_model(tmp_path, "instance_group { kind: KIND_MODEL }")).instance_groups
    assert group.kind is DeviceKind.MODEL


IMPOSSIBLE = {
    "negative count": ("{\ncount: -1 }", 6, "[0].count", "-1", "0 for the default"),
    "kind without a word": ("{ kind: 9 }", 5, "[0].kind", "9", "KIND_CPU, KIND_GPU or KIND_AUTO"),
    "kind model": ("{ kind: KIND_MODEL }", 5, "[0].kind", "KIND_MODEL", "only the code of a python model"),
    "gpus on the cpu": ("{\nkind: KIND_CPU\ngpus: 0 }", 7, "[0].gpus[0]", "[0] with KIND_CPU", "no gpus"),
    "negative gpu": ("{ kind: KIND_GPU gpus: -1 }", 5, "[0].gpus[0]", "-1", "0 or more"),
    "gpu twice": ("{ kind: KIND_GPU gpus: [ 1,\n1 ] }", 6, "[0].gpus[1]", "1 a second time", "raise count"),
    "profile": ('{\nprofile: "0" }', 6, "[0].profile[0]", '"0"', "only tensorrt"),
    "resource without name": (
        "{ rate_limiter { resources {\ncount: 1 } } }", 5, "[0].rate_limiter.resources[0].name", "no name", "the name",
    ),
    "resource twice": (
        '{ rate_limiter { resources [ { name: "R" count: 1 },\n{ name: "R" count: 1 } ] } }',
        6, "[0].rate_limiter.resources[1].name", '"R" a second time', "each resource once",
    ),
    "nothing of a resource": (
        '{ rate_limiter { resources { name: "R"\ncount: 0 } } }',
        6, "[0].rate_limiter.resources[0].count", "0", "1 or more",
    ),
    "name twice": (
        '[ { name: "a" }, { },\n{ name: "a" } ]', 6, "[2].name", '"a"', "instance_group[0] does not have",
    ),
    "name that another one gets": (
        '[ {\nname: "m_1" }, { } ]', 6, "[0].name", '"m_1"', "instance_group[1] does not have",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("groups", "line", "field", "found", "expected"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_group_is_refused_with_its_line(
    tmp_path: Path, groups: str, line: int, field: str, found: str, expected: str
) -> None:
    problem = refusal_of(read_model(write_model(tmp_path, f"{FAKE}instance_group {groups}")))
    assert (problem.source, problem.line, problem.field) == ("m/config.pbtxt", line, f"instance_group{field}")
    assert found in problem.found
    assert expected in problem.expected


def test_gpus_of_a_model_that_chooses_for_itself_are_refused(tmp_path: Path) -> None:
    problem = refusal_of(read_model(python_model(tmp_path, "instance_group { kind: KIND_MODEL gpus: 1 }")))
    assert (problem.field, problem.found) == ("instance_group[0].gpus[0]", "[1] with KIND_MODEL")
