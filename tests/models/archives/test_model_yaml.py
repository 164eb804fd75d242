"""model-config.yaml: each key is honoured, told to have no effect, or refused with its line."""

from pathlib import Path

import pytest

from batching.profiles import create_policy
from models.spec import DeviceKind
from tests.models.archives.builders import configured, entry_of, files, problem_of, spec_of, write_zip

GROUPS = [
    ("", [("m", DeviceKind.AUTO, 1, ())]),
    ("minWorkers: 3\ndeviceType: cpu", [("m", DeviceKind.CPU, 3, ())]),
    ("deviceType: GPU", [("m", DeviceKind.GPU, 1, ())]),
    ("deviceIds: [1, 3]", [("m", DeviceKind.GPU, 1, (1, 3))]),
    ("minWorkers: 4\ndeviceType: gpu\ndeviceIds: [1, 3]", [("m", DeviceKind.GPU, 2, (1, 3))]),
    (
        "minWorkers: 5\ndeviceIds: [1, 3]",
        [("m", DeviceKind.GPU, 2, (1, 3)), ("m_rest", DeviceKind.GPU, 1, (1,))],
    ),
    ("minWorkers: 1\ndeviceIds: [1, 3]", [("m", DeviceKind.GPU, 1, (1,))]),
    ("minWorkers: 0", [("m", DeviceKind.AUTO, 1, ())]),
]


def test_what_torchserve_honours_is_honoured(store: Path) -> None:
    yaml = (
        "minWorkers: 2\nmaxWorkers: 2\nbatchSize: 8\nmaxBatchDelay: 5\nresponseTimeout: 60\nstartupTimeout: 300\n"
        "jobQueueSize: 5000\nclientTimeoutInMills: 700\nuseJobTicket: true\ndeviceType: cpu\n"
    )
    write_zip(store / "a.mar", configured(yaml))

    spec = spec_of(store)

    assert (spec.max_batch_rows, spec.execution.step_timeout_s, spec.execution.load_timeout_s) == (8, 60.0, 300.0)
    assert spec.batching.policy == "torchserve"
    assert spec.batching.parameters == {
        "batch_size": 8, "max_batch_delay_ms": 5, "job_queue_size": 5000, "client_timeout_in_mills": 700,
        "use_job_ticket": True,
    }  # fmt: skip
    assert spec.batching.max_queue_requests > 5000
    assert entry_of(store).notes == ()


def test_without_a_file_everything_is_as_in_torchserve(store: Path) -> None:
    write_zip(store / "a.mar", configured(""))

    spec = spec_of(store)

    assert (spec.max_batch_rows, spec.execution.step_timeout_s, spec.execution.load_timeout_s) == (1, 120.0, 120.0)
    assert spec.batching.parameters["max_batch_delay_ms"] == 100
    assert create_policy("torchserve", spec.batching.parameters, max_batch_rows=spec.largest_batch_rows)


@pytest.mark.parametrize(("yaml", "groups"), GROUPS)
def test_workers_become_instances(store: Path, yaml: str, groups: list[object]) -> None:
    write_zip(store / "a.mar", configured(yaml))

    found = [(group.name, group.kind, group.count, group.gpus) for group in spec_of(store).instance_groups]

    assert found == groups


@pytest.mark.parametrize(
    ("yaml", "sentence"),
    [
        ("batchSize: 0", "a.mar/model-config.yaml:1: batchSize: found 0, expected a whole number from 1 to 65536"),
        ("\nbatchSize: '8'", "yaml:2: batchSize: found '8', expected a whole number"),
        ("batchSize: true", "batchSize: found True"),
        ("batchSize: 8.0", "batchSize: found 8.0"),
        ("responseTimeout: -1", "responseTimeout: found -1"),
        ("useJobTicket: 1", "useJobTicket: found 1, expected true or false"),
        ("a: 1\nbatchsize: 8", "yaml:2: batchsize: found an unknown key, expected batchSize, if that is meant"),
        ("max_batch_delay: 8", "max_batch_delay: found an unknown key, expected maxBatchDelay"),
        ("minWorker: 8", "minWorker: found an unknown key, expected minWorkers"),
        ("deviceType: neuron", "deviceType: found 'neuron', expected cpu or gpu"),
        ("deviceIds: [0, 0]", "deviceIds: found [0, 0], expected a list of numbers of GPUs, each once"),
        ("deviceIds: 0", "deviceIds: found 0, expected a list"),
        ("deviceIds: [0]\ndeviceType: cpu", "yaml:1: deviceIds: found GPUs with deviceType cpu"),
        ("minWorkers: 3\nmaxWorkers: 2", "yaml:2: maxWorkers: found 2, expected at least minWorkers, 3"),
        ("parallelType: pp", "parallelType: found 'pp', expected no such key: a model that is spread over several"),
        ("parallelLevel: 2", "parallelLevel: found 2, expected no such key"),
        ("torchrun:\n  nproc-per-node: 2", "torchrun: found {'nproc-per-node': 2}, expected no such key: torchrun is"),
        ("continuousBatching: true", "continuousBatching: found True, expected no such key: continuous batching"),
        ("sequenceBatching: true", "sequenceBatching: found True, expected no such key: a sequence batcher"),
        ("stateful: true", "stateful: found True, expected no such key: a sequence batcher"),
        ("asyncCommunication: true", "asyncCommunication: found True, expected no such key"),
        ("batchSize: 8\nbatchSize: 9", "yaml:2: batchSize: found it a second time, expected each key once"),
        ("- 1", "yaml:1: (top level): found no table, expected lines of key: value"),
        ("a: [1", "(top level): found a mistake: "),
        ("a: b: c", "yaml:1: (top level): found a mistake: mapping values are not allowed here, expected YAML"),
        ("a: !!python/object/apply:os.system [true]", "yaml:1: (top level): found a mistake: could not determine"),
        ("b: 1\na: 2024-13-45", "yaml:2: a: found something that cannot be read"),
        ("a: !!bool foo", "yaml:1: a: found something that cannot be read"),
        ("batchSize: 0x" + "f" * 6000, "yaml:1: (top level): found a mistake: a number of 6002 characters"),
        ("batchSize: 0x" + "f" * 100, "batchSize: found 0xffffffffffffffffff..., expected a whole number"),
        ("? [a, b]\n: 1", "yaml:1: (top level): found a list or table as a key, expected text"),
        ("a: " + "[" * 3000, "yaml:1: (top level): found a mistake: at most 50000 values, in at most 64 levels, are"),
        ("#" + "x" * (1 << 20), "size: found more than 1048576 bytes, expected at most 1048576"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(store: Path, yaml: str, sentence: str) -> None:
    write_zip(store / "a.mar", configured(yaml))

    assert sentence in problem_of(store)


def test_all_problems_are_told_at_once(store: Path) -> None:
    write_zip(store / "a.mar", configured("batchSize: 0\nminworkers: 1\nstateful: true", serializedFile="gone.pt"))

    problems = entry_of(store).problems

    assert len(problems) == 4
    assert "model.serializedFile: found no file 'gone.pt'" in str(problems[0])


@pytest.mark.parametrize(
    ("yaml", "note"),
    [
        (
            "minWorkers: 1\nmaxWorkers: 4",
            "a.mar/model-config.yaml:2: maxWorkers: 4 has no effect: workers are not added",
        ),
        ("minWorkers: 0", "yaml:1: minWorkers: 0 workers could not answer, one runs"),
        ("minWorkers: 2", "yaml:1: minWorkers: where there are several GPUs, 2 run on each"),
        ("maxBatchDelay: 0", "yaml:1: maxBatchDelay: 0 means no delay here, 100 ms in TorchServe"),
        ("maxRetryTimeoutInSec: 9", "yaml:1: maxRetryTimeoutInSec: has no effect: workers are restarted as"),
        ("useVenv: true", "yaml:1: useVenv: has no effect: requirements are installed beside the model"),
        ("sequenceMaxIdleMSec: 9", "yaml:1: sequenceMaxIdleMSec: has no effect: there are no sequences"),
        ('"my\\eThreshold": 0.5', r"yaml:1: my\x1bThreshold: is for the handler"),
        ("a: 1\nmyThreshold: 0.5", "yaml:2: myThreshold: is for the handler, this server does not know it"),
    ],
)
def test_what_has_no_effect_is_told_with_its_line(store: Path, yaml: str, note: str) -> None:
    write_zip(store / "a.mar", configured(yaml))

    entry = entry_of(store)

    assert entry.problems == ()
    assert [text for text in entry.notes if note in text]


@pytest.mark.parametrize(
    "yaml",
    [
        "handler:\n  profile: true",
        "pt2:\n  compile: {enable: true}",
        "continuousBatching: false",
        "parallelLevel: 1",
        "{}",
    ],
)
def test_what_is_for_the_handler_or_switched_off_is_not_worth_a_word(store: Path, yaml: str) -> None:
    write_zip(store / "a.mar", configured(yaml))

    assert entry_of(store).notes == ()


def test_a_file_that_the_manifest_does_not_name_has_no_effect_and_that_is_told(store: Path) -> None:
    write_zip(store / "a.mar", files(**{"model-config__yaml": "batchSize: 8"}))

    assert spec_of(store).max_batch_rows == 1
    assert 'a.mar/model-config.yaml: has no effect: the manifest has no "configFile"' in entry_of(store).notes[0]


def aliases(levels: int) -> str:
    lists = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, levels))
    return f"a0: &a0 [x]\n{lists}"


def test_aliases_that_multiply_are_told_in_a_few_words(store: Path) -> None:
    write_zip(store / "a.mar", configured(f"{aliases(30)}batchSize: *a29"))

    problem = problem_of(store)

    assert "a.mar/model-config.yaml:31: batchSize: found [[[[...]" in problem
    assert len(problem) < 300


def test_tables_that_multiply_when_they_are_merged_are_refused(store: Path) -> None:
    tables = "".join(
        f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 50)}]\n  k{level}: 1\n" for level in range(1, 60)
    )
    write_zip(store / "a.mar", configured(f"a0: &a0 {{k0: 1}}\n{tables}batchSize: 8"))

    entry = entry_of(store)

    # Newer versions of PyYAML take each key of a merged table once.
    assert entry.problems == () or "tables that are merged to more than 100000 keys" in str(entry.problems[0])


def test_a_table_that_is_merged_at_the_top_counts_as_for_the_handler(store: Path) -> None:
    yaml = "defaults: &d\n  batchSize: 4\n  jobQueueSize: 7\n<<: *d\nbatchSize: 8\n"
    write_zip(store / "a.mar", configured(yaml))

    spec = spec_of(store)

    assert (spec.max_batch_rows, spec.batching.parameters["job_queue_size"]) == (8, 7)
    assert spec.sources["max_batch_size"] == "model-config.yaml:5"
    assert spec.sources["shoal.batching.parameters.job_queue_size"] == "model-config.yaml:3"


def test_aliases_that_multiply_are_no_bomb(store: Path) -> None:
    write_zip(store / "a.mar", configured(f"{aliases(20)}batchSize: 8"))

    assert spec_of(store).max_batch_rows == 8
