"""shoal.toml: what it changes, and how each impossible value is refused."""

from pathlib import Path

import pytest

from models.errors import ModelsError
from models.model_directory import read_model
from models.preprocessing import Preprocessing
from models.side_file import parse_side_file
from models.spec import ExecutionSpec, Host, NonFinite
from tests.models.builders import FAKE, edited, refusal_of, spec_of, write_model

SIDE = {
    "not toml": ("labels = ", 1, "(top level)", "Invalid value", "TOML"),
    "endless nesting": ("x = " + "[" * 9999, None, "(top level)", "a mistake", "TOML"),
    "endless number": ("x = " + "9" * 9999, None, "(top level)", "4300 digits", "TOML"),
    "not finite": ("[preprocessing]\nmean = [nan, 0, 0]", 2, "preprocessing.mean[0]", "NaN", "a finite number"),
    "unknown key": ("[batching]\n\nmax_queue = 1", 3, "batching.max_queue", "unknown key", "max_queue_requests"),
    "unknown table": ("\n[batch]\nx = 1", 2, "batch", "unknown key", "batching"),
    "unknown quoted key": ('"a.b" = 1', 1, "a.b", "unknown key", "batching"),
    "policy": ('[batching]\npolicy = ""', 2, "batching.policy", '""', "at least 1 character"),
    "dotted key": ('\nbatching.oversize = "x"', 2, "batching.oversize", '"x"', "'refuse'"),
    "inline table": ('\nbatching = { oversize = "x" }', 2, "batching.oversize", '"x"', "'refuse'"),
    "queue below a batch": (
        "[batching]\nmax_queue_rows = 7",
        2,
        "batching.max_queue_rows",
        "7",
        "at least max_batch_size, 8",
    ),
    "zero limit": ("[batching]\nmax_queue_rows = 0", 2, "batching.max_queue_rows", "0", "greater than or equal to 1"),
    "text for number": ('[preprocessing]\ncrop = "224"', 2, "preprocessing.crop", '"224"', "a valid integer"),
    "date": ("labels = 2020-01-01", 1, "labels", "2020-01-01", "in the model's directory"),
    "std 0": ("[preprocessing]\nstd = [1, 0, 1]", 1, "preprocessing", "std", "no zero"),
    "unordered sizes": (
        "[batching]\nallowed_batch_sizes = [4, 2, 8]",
        2,
        "batching.allowed_batch_sizes",
        "4, 2",
        "asc",
    ),
    "sizes end early": ("[batching]\nallowed_batch_sizes = [1, 4]", 2, "batching.allowed_batch_sizes", "[1, 4]", "8"),
    "unknown host": ('[execution]\nhost = "pod"', 2, "execution.host", '"pod"', "'thread' or 'process'"),
    "no time": ("[execution]\nstep_timeout_s = 0", 2, "execution.step_timeout_s", "0", "greater than 0"),
    "endless time": ("[execution]\nload_timeout_s = inf", 2, "execution.load_timeout_s", "Infinity", "a finite number"),
    "two days": ("[execution]\nload_timeout_s = 172800", 2, "execution.load_timeout_s", "172800", "or equal to 86400"),
    "negative restarts": ("[execution]\nmax_restarts = -2", 2, "execution.max_restarts", "-2", "or equal to -1"),
    "half a restart": ("[execution]\nmax_restarts = 1.5", 2, "execution.max_restarts", "1.5", "valid integer"),
    "unknown wish": ('[execution]\nnon_finite = ""', 2, "execution.non_finite", '""', "'fail' or 'retry_fp32'"),
    "unknown execution key": ("[execution]\ntimeout = 1", 2, "execution.timeout", "unknown key", "step_timeout_s"),
    "no labels file": ('labels = "none.txt"', 1, "labels", "'none.txt'", "in the model's directory"),
    "unknown output": ('[output]\nname = "z"', 2, "output.name", '"z"', '"y"'),
    "image type": ('[preprocessing]\ndtype = "uint8"', 2, "preprocessing.dtype", '"uint8"', "TYPE_FP32"),
    "image shape": ("[preprocessing]\ncrop = 4", 2, "preprocessing.crop", "[3, 4, 4]", "[16]"),
}


@pytest.mark.parametrize(("side", "line", "field", "found", "expected"), SIDE.values(), ids=SIDE)
def test_an_impossible_side_file_is_refused_with_its_line(
    tmp_path: Path, side: str, line: int | None, field: str, found: str, expected: str
) -> None:
    problem = refusal_of(read_model(write_model(tmp_path, FAKE, side)))
    assert (problem.source, problem.line, problem.field) == ("m/shoal.toml", line, field)
    assert found in problem.found
    assert expected in problem.expected


def test_the_side_file_wins_over_the_config(tmp_path: Path) -> None:
    side = """\
        labels = "labels.txt"
        [batching]
        policy = "triton"
        max_queue_requests = 10
        max_queue_rows = 20
        oversize = "split"
        allowed_batch_sizes = [2, 8]
        faithful = true
        [batching.parameters]
        max_queue_delay_microseconds = 500
        """
    config = edited('"y"', '"y" label_filename: "gone.txt"')
    spec = spec_of(write_model(tmp_path, config, side, labels="cat\n"))
    assert spec.outputs[0].labels == ("cat",)
    assert spec.batching.policy == "triton"
    assert spec.batching.parameters == {"max_queue_delay_microseconds": 500}
    assert spec.batching.parameter_lines == {"": 3, "max_queue_delay_microseconds": 10}
    assert spec.batching.faithful
    assert not spec.batching.deadlines
    assert (spec.batching.max_queue_requests, spec.batching.max_queue_rows) == (10, 20)
    assert (spec.batching.oversize.value, spec.batching.allowed_rows) == ("split", (2, 8))


@pytest.mark.parametrize(
    ("table", "has_deadlines"),
    [
        ("", False),
        ('policy = "shoal"', True),
        ('policy = "triton"', False),
        ("deadlines = true", True),
        ('policy = "shoal"\ndeadlines = false', False),
    ],
)
def test_timeouts_are_deadlines_with_a_policy_of_the_side_file_or_when_it_says_so(
    tmp_path: Path, table: str, has_deadlines: bool
) -> None:
    spec = spec_of(write_model(tmp_path, FAKE, f"[batching]\n{table}\n"))

    assert spec.batching.deadlines == has_deadlines


def test_the_side_file_says_where_executors_live_and_when_they_are_given_up(tmp_path: Path) -> None:
    side = """\
        [execution]
        host = "process"
        step_timeout_s = 2
        load_timeout_s = 0.5
        max_restarts = -1
        non_finite = "fail"
        """
    config = FAKE + "optimization { cuda { graphs: true } }"
    spec = spec_of(write_model(tmp_path, config, side))
    assert spec.execution == ExecutionSpec(
        host=Host.PROCESS,
        step_timeout_s=2.0,
        load_timeout_s=0.5,
        max_restarts=-1,
        cuda_graphs=True,
        non_finite=NonFinite.FAIL,
    )


def test_parameters_of_the_config_remain_for_the_same_policy_only(tmp_path: Path) -> None:
    config = FAKE + "dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 7 }"
    same = spec_of(write_model(tmp_path, config, "[batching.parameters]\nmax_queue_delay_microseconds = 9", name="a"))
    other = spec_of(write_model(tmp_path, config, '[batching]\npolicy = "greedy"', name="b"))
    assert same.batching.parameters == {"preferred_batch_size": [4], "max_queue_delay_microseconds": 9}
    assert (other.batching.policy, other.batching.parameters) == ("greedy", {})


def test_in_a_table_of_the_config_only_what_is_given_is_replaced(tmp_path: Path) -> None:
    policy = "default_queue_policy { default_timeout_microseconds: 50000 max_queue_size: 100 }"
    config = FAKE + f"dynamic_batching {{ {policy} }}"
    spec = spec_of(
        write_model(tmp_path, config, "[batching.parameters]\ndefault_queue_policy = { max_queue_size = 5 }")
    )
    assert spec.batching.parameters["default_queue_policy"] == {
        "timeout_action": "REJECT", "default_timeout_microseconds": 50000, "max_queue_size": 5,
    }  # fmt: skip


def test_policies_need_a_batch_dimension_except_single(tmp_path: Path) -> None:
    config = edited("size: 8", "size: 0")
    problem = refusal_of(read_model(write_model(tmp_path, config, '[batching]\npolicy = "greedy"', name="a")))
    single = spec_of(write_model(tmp_path, config, '[batching]\npolicy = "single"', name="b"))
    assert (problem.field, problem.line) == ("batching.policy", 2)
    assert single.batching.policy == "single"


def test_labels_of_several_outputs_need_a_name(tmp_path: Path) -> None:
    config = FAKE + 'output { name: "z" data_type: TYPE_FP32 dims: 2 }'
    side = 'labels = "labels.txt"\n'
    unnamed = write_model(tmp_path, config, side, name="a", labels="cat\n")
    named = write_model(tmp_path, config, side + '[output]\nname = "z"', name="b", labels="cat\n")
    assert refusal_of(read_model(unnamed)).field == "output.name"
    assert [output.labels for output in spec_of(named).outputs] == [(), ("cat",)]
    assert spec_of(named).scores_output.name == "z"


@pytest.mark.parametrize(
    ("dims", "side"),
    [
        ("[ 3, 4, 4 ]", {"crop": 4}),
        ("[ 3, -1, -1 ]", {"crop": 4}),
        ("[ 5, 5, 3 ]", {"crop": 5, "layout": "HWC"}),
    ],
)
def test_preprocessing_that_fits_the_input_is_kept(tmp_path: Path, dims: str, side: dict[str, object]) -> None:
    text = "[preprocessing]\n" + "\n".join(f"{key} = {value!r}" for key, value in side.items())
    spec = spec_of(write_model(tmp_path, edited("[ 16 ]", dims), text))
    assert spec.preprocessing == Preprocessing.model_validate(side)


def test_preprocessing_needs_exactly_one_input(tmp_path: Path) -> None:
    config = FAKE + 'input { name: "b" data_type: TYPE_FP32 dims: 1 }'
    problem = refusal_of(read_model(write_model(tmp_path, config, "\n[preprocessing]")))
    assert (problem.line, problem.field, problem.found) == (2, "preprocessing", "a model with 2 inputs")


def test_an_empty_label_file_is_refused(tmp_path: Path) -> None:
    directory = write_model(tmp_path, FAKE, 'labels = "labels.txt"', labels="\n")
    problem = refusal_of(read_model(directory))
    assert (problem.source, problem.found, problem.expected) == ("m/labels.txt", "an empty file", "one label a line")


@pytest.mark.parametrize("key", ["7", '"my label"', '""', '"["', '".a"', '"a]."', '"[0]"'])
@pytest.mark.parametrize("table", ["", "[version_labels]", "[batching]", "[preprocessing]", "[golden]", "[output]"])
def test_every_bad_key_is_told_whatever_it_looks_like(table: str, key: str) -> None:
    with pytest.raises(ModelsError, match=r"^m/shoal.toml"):
        parse_side_file(f"{table}\n{key} = 1", "m/shoal.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[preprocessing]\nmean = [1, 2]", "mean: found [1, 2], expected three numbers"),
        ("[preprocessing]\nstd = [1, 2, 3, 4]", "std: found [1, 2, 3, 4], expected three numbers"),
        ("[preprocessing]\nmean = 1", "mean: found 1, expected three numbers"),
        ("[preprocessing]\nbackground = [1, 2]", "background: found [1, 2], expected three levels: red, green, blue"),
        ("preprocessing = 1", "preprocessing: found 1, expected a table"),
        ("[output]", "output.name: found nothing, expected a value"),
        ("labels = 3", "labels: found 3, expected a text in quotes"),
        ("required = 1", "required: found 1, expected true or false"),
        ("[batching]\nmax_queue_rows = 0", "max_queue_rows: found 0, expected a number greater than or equal to 1"),
        ("[version_labels]\n7 = 1", 'version_labels.7: found "7", expected a name of letters, digits'),
    ],
)
def test_a_wrong_value_is_told_in_words_of_the_file(text: str, words: str) -> None:
    with pytest.raises(ModelsError) as caught:
        parse_side_file(text, "m/shoal.toml")

    assert words in str(caught.value)
