"""Parameters of a model that Triton's backend for ONNX Runtime has: honoured, or refused by name."""

import pytest

from backends.errors import LoadError
from backends.onnx_engine.settings import SessionSettings, read_settings
from backends.ports import Placement
from tests.backends.builders import model


def settings(*, instances: int = 1, cores: int = 1, **parameters: str) -> SessionSettings:
    return read_settings(model(backend="onnxruntime", **parameters), Placement(instances=instances, cores=cores))


def test_nothing_said_means_the_defaults_and_an_equal_part_of_the_cores():
    assert settings(instances=2, cores=9) == SessionSettings(intra_op_threads=4)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        pytest.param({"intra_op_thread_count": "3"}, {"intra_op_threads": 3}, id="threads"),
        pytest.param(
            {"inter_op_thread_count": "2"},
            {"intra_op_threads": 4, "inter_op_threads": 2, "is_parallel": True},
            id="ops",
        ),
        pytest.param(
            {"execution_mode": "1"}, {"intra_op_threads": 4, "inter_op_threads": 4, "is_parallel": True}, id="parallel"
        ),
        pytest.param(
            {"execution_mode": "0", "inter_op_thread_count": "2"}, {"intra_op_threads": 4}, id="sequential has one"
        ),
        pytest.param({"enable_mem_arena": "0"}, {"intra_op_threads": 4, "has_arena": False}, id="arena"),
        pytest.param({"enable_mem_pattern": "false"}, {"intra_op_threads": 4, "has_pattern": False}, id="pattern"),
        pytest.param({"enable_mem_arena": "TRUE"}, {"intra_op_threads": 4}, id="arena on"),
        pytest.param(
            {"share_session_between_instances": "false"}, {"intra_op_threads": 4, "is_shared": False}, id="own sessions"
        ),
        pytest.param(
            {"memory.enable_memory_arena_shrinkage": "cpu:0;gpu:3"},
            {"intra_op_threads": 4, "run_entries": {"memory.enable_memory_arena_shrinkage": "cpu:0;gpu:0"}},
            id="shrinkage on the only GPU that a process sees",
        ),
        pytest.param(
            {"session.use_device_allocator_for_initializers": "1"},
            {"intra_op_threads": 4, "session_entries": {"session.use_device_allocator_for_initializers": "1"}},
            id="allocator",
        ),
        pytest.param(
            {
                "cudnn_conv_algo_search": "0",
                "arena_extend_strategy": "1",
                "gpu_mem_limit": "4294967200",
                "do_copy_in_default_stream": "true",
            },
            {
                "intra_op_threads": 4,
                "cuda_options": {
                    "cudnn_conv_algo_search": "EXHAUSTIVE",
                    "arena_extend_strategy": "kSameAsRequested",
                    "gpu_mem_limit": "4294967200",
                    "do_copy_in_default_stream": "1",
                },
            },
            id="numbers of the CUDA provider's words",
        ),
    ],
)
def test_a_parameter_is_honoured(parameters: dict[str, str], expected: dict[str, object]):
    assert settings(cores=4, **parameters) == SessionSettings(**expected)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("execution_mode", "2", "sequential (0) or parallel (1)"),
        ("enable_mem_arena", "yes", "true, false, 1 or 0"),
        ("cudnn_conv_algo_search", "3", "EXHAUSTIVE (0) or HEURISTIC (1) or DEFAULT (2)"),
        ("gpu_mem_limit", "4G", "a number from 0 up"),
        ("memory.enable_memory_arena_shrinkage", "1", 'devices, e.g. "cpu:0;gpu:0"'),
    ],
)
def test_a_bad_value_is_refused_with_what_is_expected(name: str, text: str, expected: str):
    with pytest.raises(LoadError) as caught:
        settings(**{name: text})

    assert str(caught.value) == f"model 'm': parameter '{name}' is '{text}', expected {expected}"


@pytest.mark.parametrize(
    "name",
    ["session.disable_prepacking", "enable_cpu_mem_arena", "intra_op_threads", "execution_modes", "trt_fp16_enable"],
)
def test_a_parameter_that_is_meant_for_the_engine_and_not_known_is_refused_with_those_that_are(name: str):
    with pytest.raises(
        LoadError, match=f"parameter '{name}' is not known, expected one of .*, intra_op_thread_count, "
    ):
        settings(**{name: "1"})


def test_a_parameter_for_somebody_else_is_left_alone_and_a_log_line_says_so(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO"):
        assert settings(team="vision") == SessionSettings()

    assert caplog.messages == ["model 'm': parameter 'team' is none of backend 'onnxruntime'"]
