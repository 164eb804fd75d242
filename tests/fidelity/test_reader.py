"""Traces from files: what is read, and what is said about a file that is none."""

import gzip
import json

import pytest

from loadtest.fidelity.compact import compact
from loadtest.fidelity.errors import UnknownServerError, UnreadableTraceError
from loadtest.fidelity.reader import read
from loadtest.fidelity.traces import BatchingConfig, Server
from tests.fidelity.builders import BATCHES, REQUESTS, WORDS, content, write

TRITON = {
    "max_batch_size": 16,
    "dynamic_batching": {
        "preferred_batch_size": [4, 8],
        "max_queue_delay_microseconds": "2000",  # protobuf writes 64-bit numbers as strings
        "default_queue_policy": {
            "timeout_action": "DELAY",
            "default_timeout_microseconds": "30000",
            "max_queue_size": 64,
        },
        "priority_levels": 2,
        "preserve_ordering": True,
    },
    "instance_group": [{"count": 2, "kind": "KIND_CPU"}, {"count": 1}],
}


def test_a_trace_is_read_with_everything_that_is_used(tmp_path):
    trace = read(write(tmp_path, mean_queue_ms_server=1.25))

    assert (trace.case, trace.server, trace.clients) == ("hand_made", Server.TORCHSERVE, 2)
    assert (trace.service_model, trace.mean_queue_ms) == (WORDS, 1.25)
    assert trace.config == BatchingConfig(max_batch_rows=8, delay_us=5_000)
    assert trace.recording.requests.tolist() == REQUESTS
    assert trace.recording.batches.tolist() == BATCHES


def test_a_triton_configuration_keeps_its_meaning(tmp_path):
    trace = read(write(tmp_path, server="triton", batching_config=TRITON))

    assert trace.config == BatchingConfig(
        max_batch_rows=16,
        delay_us=2_000,
        instances=3,
        preferred_rows=(4, 8),
        queue_limit_requests=64,
        timeout_us=30_000,
        delays_late=True,
        priority_levels=2,
        preserve_ordering=True,
    )


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"max_batch_size": 16, "dynamic_batching": None}, id="no-dynamic-batching"),
        pytest.param({"max_batch_size": 0, "dynamic_batching": {}}, id="no-batch-dimension"),
    ],
)
def test_a_triton_model_without_batching_runs_requests_alone(tmp_path, config):
    path = write(tmp_path, server="triton", batching_config=config, batches=[[0, 8_000, 1]])

    assert not read(path).config.batches


def test_the_first_word_of_the_server_counts(tmp_path):
    config = {"batch_size": 32, "delay_ms": 5, "workers": 2}

    trace = read(write(tmp_path, server="litserve_fast", batching_config=config))

    assert trace.server is Server.LITSERVE
    assert trace.config == BatchingConfig(max_batch_rows=32, delay_us=5_000, instances=2)


def test_any_load_without_clients_is_an_open_loop(tmp_path):
    assert read(write(tmp_path, load={"poisson_per_s": 50})).clients is None


def test_a_gzipped_compact_trace_is_the_same_trace(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(compact(json.dumps(content())))

    trace = read(path)

    assert trace.recording.requests.tolist() == REQUESTS
    assert trace.recording.batches.tolist() == BATCHES


def test_equal_traces_give_equal_compact_files():
    assert compact(json.dumps(content())) == compact(json.dumps(content(), indent=2))


def test_a_server_without_a_policy_is_named_with_those_that_have_one(tmp_path):
    path = write(tmp_path, server="tgi")

    with pytest.raises(UnknownServerError, match="server is 'tgi', expected one of triton, torchserve"):
        read(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"requests": []}, "requests or batches is empty", id="no-requests"),
        pytest.param({"requests": [[0, 1]]}, "requests", id="a-row-is-short"),
        pytest.param({"load": {"closed_loop_clients": 0}}, "load.closed_loop_clients", id="no-clients"),
        pytest.param({"batching_config": {"batch_size": 0}}, "batching_config.batch_size", id="no-batch"),
        pytest.param(
            {"server": "triton", "batching_config": {"instance_group": [{"count": -1}]}},
            "batching_config.instance_group.0.count",
            id="no-instances",
        ),
        pytest.param(
            {"requests": {"arrival_step_us": [1, 2], "latency_us": [1], "http_status": [200]}},
            "columns",
            id="columns-differ-in-length",
        ),
    ],
)
def test_a_damaged_trace_is_refused_with_the_place(tmp_path, changes, words):
    path = write(tmp_path, **changes)

    with pytest.raises(UnreadableTraceError, match=words) as refusal:
        read(path)

    assert str(refusal.value).startswith(str(path))


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"# no JSON", id="text"),
        pytest.param(b"[]", id="a-list"),
        pytest.param(gzip.compress(b"{}")[:-6], id="half-a-gzip"),
        pytest.param(b"\x1f\x8bgarbage!!", id="garbage-gzip"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_one_sentence(tmp_path, damaged):
    path = tmp_path / "trace.json"
    path.write_bytes(damaged)

    with pytest.raises(UnreadableTraceError) as refusal:
        read(path)

    assert "\n" not in str(refusal.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(UnreadableTraceError, match="cannot be read"):
            read(path)
