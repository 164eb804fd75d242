"""A sample of the recorded runs, few seeds each: the whole suite is `make fidelity`."""

from pathlib import Path

import pytest

from batching.policies.triton import TritonExperiments
from loadtest.fidelity import __main__ as suite
from loadtest.fidelity import mutants
from loadtest.fidelity.reader import read
from loadtest.fidelity.suite import judge_trace
from tests.fidelity.builders import TRACES, write

SAMPLE = [
    "triton_sleepm_r50",
    "triton_sleepm_r200",
    "triton_sleepm_nopref_r50",
    "triton_sleepm_c8",
    pytest.param("triton_sleepm_delay0_c8", marks=pytest.mark.slow),
    "torchserve_s8d5_r50",
    "torchserve_s32d5_r200",
    "torchserve_s8d5_c8",
    "torchserve_s32d100_c4",
    "mosec_sleep_c1",
    "mosec_sleep_c8",
    "litserve_sleep_c1",
    "litserve_fast_sleep_c8",
    "mlserver_sleep_c1",
    "mlserver_sleep_c8",
]


def recorded(case: str) -> Path:
    return TRACES / f"{case}.json.gz"


@pytest.mark.parametrize("case", SAMPLE)
def test_a_policy_behaves_like_the_recorded_server(case):
    verdict = judge_trace(read(recorded(case)), thin=True)

    assert verdict.judgement.is_inside, verdict.judgement.worst


@pytest.mark.parametrize(
    ("case", "experiments"),
    [
        pytest.param("triton_sleepm_r200", TritonExperiments(every_arrival_wakes=True), id="every-arrival-wakes"),
        pytest.param("triton_sleepm_r200", TritonExperiments(dequeue_first=False), id="batcher-before-dequeue"),
        pytest.param(
            "triton_sleepm_c32_rep2",
            TritonExperiments(staged_payloads_per_instance=1),
            id="one-staged-payload",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_policy_with_a_wrong_rule_is_caught(case, experiments):
    assert judge_trace(read(recorded(case)), experiments, thin=True).fails


def test_a_verdict_is_always_the_same():
    trace = read(recorded("triton_sleepm_r50"))

    assert judge_trace(trace, thin=True) == judge_trace(trace, thin=True)


def wrong_batch_size(folder: Path) -> Path:
    """TorchServe's run with batches of 8, but a configuration that would allow 16."""
    return write(
        folder,
        load={"closed_loop_clients": 16},
        batching_config={"batch_size": 16, "max_batch_delay_ms": 5},
        requests=[[burst * 17_500, 35_000, 200] for burst in range(60) for _ in range(8)],
        batches=[[burst * 17_500 + 18_000, burst * 17_500 + 33_600, 8] for burst in range(60)],
    )


@pytest.mark.slow
def test_files_are_judged_in_their_order_and_counted(capsys):
    status = suite.main(["--quick", str(recorded("mosec_sleep_c1")), str(recorded("bentoml_sleep_c1"))])

    header, first, second, last = capsys.readouterr().out.splitlines()
    assert status == 0
    assert header.startswith("case")
    assert (first.split()[0], second.split()[0]) == ("mosec_sleep_c1", "bentoml_sleep_c1")
    assert last == "1 inside, 0 outside, 1 shown only"


def test_a_case_outside_gives_status_one(tmp_path, capsys):
    status = suite.main(["--quick", str(wrong_batch_size(tmp_path))])

    assert status == 1
    assert "OUTSIDE" in capsys.readouterr().out


def test_every_figure_is_printed_on_request(capsys):
    suite.main(["--quick", "--figures", str(recorded("triton_sleepm_r50"))])

    printed = capsys.readouterr().out
    assert all(word in printed for word in ("req/s", "EMD/batch", "queue ms", "p50 ms", "p99 ms"))


def test_bentoml_and_ray_never_fail_the_suite(tmp_path, capsys):
    requests = [[number * 50_000, 1_000, 200] for number in range(60)]
    path = write(tmp_path, server="bentoml", requests=requests, batches=[[0, 900, 1]] * 60)

    assert suite.main(["--quick", str(path)]) == 0
    assert "0 inside, 0 outside, 1 shown only" in capsys.readouterr().out


@pytest.mark.parametrize("main", [suite.main, mutants.main])
def test_an_unknown_server_gives_status_two_and_one_sentence(main, tmp_path, capsys):
    path = write(tmp_path, server="tgi")

    assert main([str(recorded("mosec_sleep_c1")), str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"{path}: server is 'tgi', expected one of triton, torchserve, litserve, mosec, mlserver, bentoml, rayserve"
    ]


def test_an_unreadable_file_gives_status_two(tmp_path, capsys):
    assert suite.main([str(tmp_path / "missing.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_configuration_that_the_server_would_refuse_gives_status_two(tmp_path, capsys):
    config = {"max_batch_size": 8, "dynamic_batching": {"preserve_ordering": True, "priority_levels": 2}}

    assert suite.main([str(write(tmp_path, server="triton", batching_config=config))]) == 2
    assert "batching_config is none of triton: preserve_ordering" in capsys.readouterr().err


@pytest.mark.slow
def test_mutants_that_no_case_catches_are_named(capsys):
    status = mutants.main([str(recorded("triton_sleepm_r50")), str(recorded("mosec_sleep_c1"))])

    printed = capsys.readouterr().out
    assert status == 1
    assert "no merge at dequeue: not caught" in printed
    assert "mosec" not in printed
