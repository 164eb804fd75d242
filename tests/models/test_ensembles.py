"""Ensembles: their configurations, the graphs that they make, and the models that they consist of."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.ensembles import check_ensemble, check_graph, dependencies, plan
from models.errors import ConfigError
from models.model_directory import read_model
from models.spec import EnsembleStep, ModelSpec
from tests.models.builders import refusal_of, spec_of, write_model

FULL = """platform: "ensemble"
max_batch_size: 8
input { name: "photo" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "label" data_type: TYPE_STRING dims: [ 3 ] }
ensemble_scheduling {
  step [
    {
      model_name: "decode"
      model_version: -1
      input_map { key: "image" value: "photo" }
      output_map { key: "pixels" value: "pixels" }
    },
    {
      model_name: "lite0"
      model_version: 2
      input_map { key: "images" value: "pixels" }
      output_map { key: "logits" value: "scores" }
    },
    {
      model_name: "topk"
      input_map { key: "scores" value: "scores" }
      output_map { key: "labels" value: "label" }
    }
  ]
}
"""
"""A chain of three."""
PARTS = {
    "decode": """backend: "fake" max_batch_size: 8
input { name: "image" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "pixels" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] }
output { name: "sizes" data_type: TYPE_INT64 dims: [ 2 ] }""",
    "lite0": """backend: "fake" max_batch_size: 8
input { name: "images" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
input { name: "temperature" data_type: TYPE_FP32 dims: [ 1 ] optional: true }
output { name: "logits" data_type: TYPE_FP32 dims: [ 1000 ] }""",
    "topk": """backend: "fake" max_batch_size: 8
input { name: "scores" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "labels" data_type: TYPE_STRING dims: [ 3 ] }""",
}


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def full_spec(root: Path, *changes: tuple[str, str]) -> ModelSpec:
    return spec_of(write_model(root, changed(FULL, *changes), name="full"))


def problems_with(root: Path, spec: ModelSpec, parts: Mapping[str, str] = PARTS) -> list[ConfigError]:
    versions = {"lite0": "2"}
    found = {
        name: spec_of(write_model(root, text, name=name, versions=[versions.get(name, "1")]))
        for name, text in parts.items()
    }
    return check_ensemble(spec, lambda name, version: _matching(found.get(name), version))


def _matching(spec: ModelSpec | None, version: int | None) -> ModelSpec | None:
    return spec if spec is not None and version in (None, spec.version) else None


def test_a_configuration_becomes_steps_without_instances(tmp_path: Path) -> None:
    spec = full_spec(tmp_path)

    assert (spec.platform, spec.backend, spec.instance_groups) == ("ensemble", "ensemble", ())
    assert spec.steps == (
        EnsembleStep(model="decode", version=None, inputs={"image": "photo"}, outputs={"pixels": "pixels"}),
        EnsembleStep(model="lite0", version=2, inputs={"images": "pixels"}, outputs={"logits": "scores"}),
        EnsembleStep(model="topk", version=None, inputs={"scores": "scores"}, outputs={"labels": "label"}),
    )
    assert problems_with(tmp_path, spec) == []
    assert dependencies(spec) == (("decode", None), ("lite0", 2), ("topk", None))


def test_the_shown_configuration_is_tritons(tmp_path: Path) -> None:
    shown = full_spec(tmp_path, ('platform: "ensemble"', "")).config

    scheduling = shown["ensemble_scheduling"]
    assert isinstance(scheduling, dict)
    assert [(step["model_name"], step["model_version"]) for step in scheduling["step"]] == [
        ("decode", -1),
        ("lite0", 2),
        ("topk", -1),
    ]
    assert (shown["platform"], shown["backend"], shown["instance_group"]) == ("ensemble", "", [])
    assert "optimization" not in shown


def test_the_limit_of_running_requests_is_the_side_files(tmp_path: Path) -> None:
    spec = spec_of(write_model(tmp_path, FULL, "[batching]\nmax_queue_requests = 3\n"))

    assert spec.batching.max_queue_requests == 3


def test_a_limit_of_requests_within_a_step_is_told_to_have_no_effect(tmp_path: Path) -> None:
    entry = read_model(write_model(tmp_path, changed(FULL, ("step [", "max_inflight_requests: 4\n  step ["))))

    assert entry.notes == (
        "m/config.pbtxt:6: ensemble_scheduling.max_inflight_requests: has no effect: each step of a request runs once",
    )


STEP = "ensemble_scheduling.step"
REFUSED = {
    "a backend": (("platform", 'backend: "python"\nplatform'), 1, "backend", "no backend"),
    "instances": (("input {", "instance_group { count: 2 }\ninput {"), 3, "instance_group[0]", "no instance groups"),
    "optimization": (("input {", "optimization { }\ninput {"), 3, "optimization", "no optimization"),
    "warm-up": (('input { name: "p', 'model_warmup { }\ninput { name: "p'), 3, "model_warmup[0]", "no warm-up"),
    "a file": (("input {", 'default_model_filename: "m"\ninput {'), 3, "default_model_filename", "no file"),
    "another platform": (('"ensemble"', '"onnxruntime_onnx"'), 1, "platform", '"ensemble"'),
    "no name": (('model_name: "lite0"', ""), 13, f"{STEP}[1].model_name", "the name of the model"),
    "a namespace": (("model_version: 2", 'model_namespace: "n"'), 15, f"{STEP}[1].model_namespace", "no namespace"),
    "a wrong version": (("model_version: 2", "model_version: -2"), 15, f"{STEP}[1].model_version", "or -1"),
    "an empty key": (('key: "images"', 'key: ""'), 13, f"{STEP}[1].input_map", "two names"),
    "a tensor made twice": (
        ('value: "scores"', 'value: "pixels"'),
        17,
        f"{STEP}[1].output_map.logits",
        "a tensor that nobody else makes: step 1 'decode' output 'pixels' makes it already",
    ),
}


@pytest.mark.parametrize(("change", "line", "field", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_an_ensemble_cannot_say_is_refused_with_its_line(
    tmp_path: Path, change: tuple[str, str], line: int, field: str, expected: str
) -> None:
    first, *_ = read_model(write_model(tmp_path, changed(FULL, change))).problems

    assert isinstance(first, ConfigError)
    assert (first.source, first.line, first.field) == ("m/config.pbtxt", line, field)
    assert expected in first.expected


@pytest.mark.parametrize("scheduling", ["dynamic_batching { }", "ensemble_scheduling { }", ""])
def test_an_ensemble_without_steps_is_refused(tmp_path: Path, scheduling: str) -> None:
    text = changed(FULL[: FULL.index("ensemble_scheduling")], ("input {", f"{scheduling}\ninput {{"))

    problems = read_model(write_model(tmp_path, text)).problems

    assert "found no steps" in str(problems[-1])


@pytest.mark.parametrize("key", ["batching.oversize", "batching.policy", "execution.host"])
def test_what_only_its_models_can_do_is_refused_in_the_side_file(tmp_path: Path, key: str) -> None:
    table, _, name = key.partition(".")
    values = {"oversize": '"split"', "policy": '"triton"', "host": '"thread"'}
    side = f"[{table}]\n{name} = {values[name]}\n"

    problem = refusal_of(read_model(write_model(tmp_path, FULL, side)))

    assert (problem.source, problem.line, problem.field) == ("m/shoal.toml", 2, key)


UNSOUND = {
    "made by nobody": (
        [('value: "pixels" }\n    },', 'value: "other" }\n    },')],
        16,
        "step 2 'lite0' input 'images' <- ensemble tensor 'pixels', made by nobody",
    ),
    "an output made by no step": (
        [('name: "label"', 'name: "labels"')],
        4,
        "ensemble output 'labels', made by no step",
    ),
    "an input used by no step": (
        [("output {", 'input { name: "more" data_type: TYPE_STRING dims: [ 1 ] }\noutput {')],
        4,
        "ensemble input 'more', used by no step",
    ),
    "a tensor used by nobody": (
        [("output_map {", 'output_map { key: "sizes" value: "sizes" }\n      output_map {')],
        11,
        "step 1 'decode' output 'sizes' -> ensemble tensor 'sizes', used by nobody",
    ),
    "a cycle": (
        [("input_map {", 'input_map { key: "back" value: "scores" }\n      input_map {')],
        8,
        "a cycle: step 1 'decode' input 'back' <- ensemble tensor 'scores' of step 2 'lite0'; "
        "step 2 'lite0' input 'images' <- ensemble tensor 'pixels' of step 1 'decode'",
    ),
    "a step that waits for itself": (
        [("input_map {", 'input_map { key: "back" value: "pixels" }\n      input_map {')],
        8,
        "a cycle: step 1 'decode' input 'back' <- ensemble tensor 'pixels' of step 1 'decode'",
    ),
}


@pytest.mark.parametrize(("changes", "line", "found"), UNSOUND.values(), ids=UNSOUND)
def test_a_graph_that_cannot_run_is_refused_with_the_edge(
    tmp_path: Path, changes: list[tuple[str, str]], line: int, found: str
) -> None:
    problems = read_model(write_model(tmp_path, changed(FULL, *changes))).problems

    matching = [problem for problem in problems if isinstance(problem, ConfigError) and problem.found == found]
    assert [problem.line for problem in matching] == [line], problems


MISMATCHES = {
    "no such model": ("lite0", None, f"{STEP}[1].model_version", 15, "no model 'lite0' version 2"),
    "an unknown input": (
        "lite0",
        ('"images"', '"pictures"'),
        f"{STEP}[1].input_map.images",
        16,
        "step 2 'lite0' input 'images' <- ensemble tensor 'pixels'",
    ),
    "an input that is not mapped": (
        "lite0",
        (" optional: true", ""),
        f"{STEP}[1]",
        14,
        "step 2 'lite0' input 'temperature' <- nothing",
    ),
    "an unknown output": (
        "lite0",
        ('"logits"', '"logit"'),
        f"{STEP}[1].output_map.logits",
        17,
        "step 2 'lite0' output 'logits' -> ensemble tensor 'scores'",
    ),
    "another type": (
        "lite0",
        ("TYPE_FP32", "TYPE_FP16"),
        f"{STEP}[1].input_map.images",
        16,
        "step 2 'lite0' input 'images' <- ensemble tensor 'pixels' of step 1 'decode': TYPE_FP32",
    ),
    "another shape": (
        "lite0",
        ("[ 3, 224, 224 ]", "[ 4, 224, 224 ]"),
        f"{STEP}[1].input_map.images",
        16,
        "step 2 'lite0' input 'images' <- ensemble tensor 'pixels' of step 1 'decode': shape [-1, 3, -1, -1]",
    ),
    "another shape at the end": (
        "topk",
        ("[ 3 ]", "[ 5 ]"),
        "output[0]",
        4,
        "ensemble output 'label' <- step 3 'topk': shape [-1, 5]",
    ),
    "another shape at the beginning": (
        "decode",
        ("[ 1 ]", "[ 2 ]"),
        f"{STEP}[0].input_map.image",
        10,
        "step 1 'decode' input 'image' <- ensemble tensor 'photo' of ensemble input 'photo': shape [-1, 1]",
    ),
    "smaller batches": (
        "lite0",
        ("max_batch_size: 8", "max_batch_size: 4"),
        "max_batch_size",
        2,
        "max_batch_size 8, but step 2 'lite0' has 4",
    ),
    "no batches": (
        "decode",
        ("max_batch_size: 8", "max_batch_size: 0"),
        "max_batch_size",
        2,
        "max_batch_size 8, but step 1 'decode' has 0",
    ),
}


@pytest.mark.parametrize(("part", "change", "field", "line", "found"), MISMATCHES.values(), ids=MISMATCHES)
def test_a_model_that_does_not_fit_is_refused_with_the_edge(
    tmp_path: Path, part: str, change: tuple[str, str] | None, field: str, line: int, found: str
) -> None:
    parts = {name: text for name, text in PARTS.items() if name != part or change is not None}
    if change is not None:
        parts[part] = changed(PARTS[part], change)

    problem, *_ = problems_with(tmp_path, full_spec(tmp_path), parts)

    assert (problem.source, problem.field, problem.line) == ("full/config.pbtxt", field, line)
    assert found in problem.found


def test_a_model_that_splits_what_is_too_large_may_have_smaller_batches(tmp_path: Path) -> None:
    spec = full_spec(tmp_path)
    parts = {name: spec_of(write_model(tmp_path, text, name=name)) for name, text in PARTS.items() if name != "lite0"}
    small = changed(PARTS["lite0"], ("max_batch_size: 8", "max_batch_size: 4"))
    side = '[batching]\noversize = "split"\n'
    parts["lite0"] = spec_of(write_model(tmp_path, small, side, name="lite0", versions=["2"]))

    assert check_ensemble(spec, lambda name, _version: parts[name]) == []


@pytest.mark.parametrize(("dims", "fits"), [("-1, 16", True), ("16", True), ("4, 16", True), ("-1, 8", False)])
def test_an_ensemble_without_batches_may_hand_rows_to_a_model_with_them(tmp_path: Path, dims: str, fits: bool) -> None:
    text = """platform: "ensemble"
    input { name: "a" data_type: TYPE_FP32 dims: [ DIMS ] }
    output { name: "b" data_type: TYPE_FP32 dims: [ DIMS ] }
    ensemble_scheduling { step { model_name: "part"
      input_map { key: "x" value: "a" } output_map { key: "y" value: "b" } } }"""
    spec = spec_of(write_model(tmp_path, text.replace("DIMS", dims)))
    part = """backend: "fake" max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [ 16 ] } output { name: "y" data_type: TYPE_FP32 dims: [ 16 ] }"""

    assert (problems_with(tmp_path, spec, {"part": part}) == []) is fits


def test_what_requests_may_leave_out_must_go_to_an_optional_input(tmp_path: Path) -> None:
    spec = full_spec(tmp_path, ("dims: [ 1 ] }", "dims: [ 1 ] optional: true }"))

    (problem,) = problems_with(tmp_path, spec)

    assert "which requests may leave out" in problem.found


def test_ensembles_that_contain_each_other_are_refused_with_the_way_round(tmp_path: Path) -> None:
    outer = full_spec(tmp_path, ('"decode"', '"inner"'))
    inner = spec_of(write_model(tmp_path, changed(FULL, ('"decode"', '"full"')), name="inner"))
    specs = {"full": outer, "inner": inner}

    problems = [str(problem) for problem in check_ensemble(outer, lambda name, _version: specs.get(name))]

    assert (
        "full/config.pbtxt:8: ensemble_scheduling.step[0].model_name: found step 1 'inner', which leads back: "
        in (problems[0])
    )
    assert "full -> inner -> full" in problems[0]


def test_a_problem_of_several_models_is_told_for_each(tmp_path: Path) -> None:
    problems = problems_with(tmp_path, full_spec(tmp_path), {"decode": PARTS["decode"]})

    assert [problem.field for problem in problems] == [f"{STEP}[1].model_version", f"{STEP}[2].model_name"]


def with_edges(root: Path, count: int, edges: set[tuple[int, int]]) -> ModelSpec:
    """Steps 0 to `count` - 1, where an edge goes from the first to the second of a pair."""
    inputs = 'input { name: "in" data_type: TYPE_FP32 dims: [ 1 ] }'
    outputs = "\n".join(f'output {{ name: "t{step}" data_type: TYPE_FP32 dims: [ 1 ] }}' for step in range(count))
    steps = []
    for step in range(count):
        sources = [f"t{before}" for before, after in sorted(edges) if after == step]
        maps = [f'input_map {{ key: "x{index}" value: "{name}" }}' for index, name in enumerate(["in", *sources])]
        made = f'output_map {{ key: "y" value: "t{step}" }}'
        steps.append(f'step {{ model_name: "m{step}" {" ".join(maps)} {made} }}')
    text = "\n".join([inputs, outputs, "ensemble_scheduling {", *steps, "}"])
    return spec_of(write_model(root, text, name="random"))


@given(data=st.data(), count=st.integers(1, 7))
def test_a_step_is_planned_after_all_that_it_waits_for(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, count: int
) -> None:
    pairs = [(before, after) for after in range(count) for before in range(after)]
    edges = set(data.draw(st.lists(st.sampled_from(pairs)))) if pairs else set()
    names = data.draw(st.permutations(range(count)))
    renamed = {(names[before], names[after]) for before, after in edges}

    spec = with_edges(tmp_path_factory.mktemp("graph"), count, renamed)
    order = plan(spec)

    place = {step: number for number, level in enumerate(order.levels) for step in level}
    assert check_graph(spec) == []
    assert sorted(place) == list(range(count))
    assert all(place[before] < place[after] for before, after in renamed)
    assert {(before, after) for before in range(count) for after in order.followers[before]} == renamed
    assert order.waits == tuple(sum(after == step for _, after in renamed) for step in range(count))
