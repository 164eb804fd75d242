"""A shared session and what is checked of it, with a session that the test makes up."""

from pathlib import Path
from typing import NamedTuple

import pytest

from backends.errors import LoadError
from backends.onnx_engine.libraries import missing_library
from backends.onnx_engine.providers import CPU, CUDA, TENSORRT, Provider
from backends.onnx_engine.session import SharedSession, check_providers, clean_text
from tests.backends.builders import model


class Session(NamedTuple):
    providers: list[str]

    def get_providers(self) -> list[str]:
        return self.providers


WANTED = (Provider(TENSORRT), Provider(CUDA), Provider(CPU))


def test_a_session_with_all_providers_is_accepted():
    check_providers(model(), Session([TENSORRT, CUDA, CPU]), WANTED, explain=str)


@pytest.mark.parametrize(
    ("found", "missing"), [([CPU], TENSORRT), ([CUDA, CPU], TENSORRT), ([TENSORRT, CPU], CUDA)], ids=str
)
def test_a_session_that_would_silently_use_another_provider_is_refused_with_the_reason(found: list[str], missing: str):
    with pytest.raises(LoadError) as caught:
        check_providers(model(), Session(found), WANTED, explain=lambda name: f"{name} lacks libcublas")

    assert str(caught.value) == (
        f"model 'm' version 1: ONNX Runtime left out {missing} and would compute with {', '.join(found)}: "
        f"{missing} lacks libcublas"
    )


def test_a_provider_without_its_library_is_explained_without_paths(tmp_path: Path):
    missing = missing_library(tmp_path, CUDA)

    assert missing.startswith("libonnxruntime_providers_shared.so: cannot open shared object file")
    assert str(tmp_path) not in missing


@pytest.mark.parametrize(("warms_once", "runs"), [(True, [1, 2, 4]), (False, [1, 2, 2, 4])], ids=["CPU", "GPU"])
def test_sizes_are_run_once_for_all_or_by_everybody(warms_once: bool, runs: list[int]):
    shared = SharedSession(lambda: Session([CPU]), warms_once=warms_once)
    found: list[int] = []

    shared.warm_up([1, 2], found.append)
    shared.warm_up([2, 4], found.append)

    assert found == runs
    assert [shared.is_warm(rows) for rows in (1, 2, 3, 4)] == [True, True, False, True]


def test_error_texts_lose_the_names_of_this_machine_and_of_the_engines_makers():
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/onnxruntime/cuda_call.cc:129 void Call() CUDA failure 2: "
        "out of memory ; GPU=0 ; hostname=box17 ; file=/onnxruntime_src/a.cc ; line=48 ; expr=cudaMalloc(&p)"
    )

    assert (
        clean_text(text, model())
        == "1 : FAIL : void Call() CUDA failure 2: out of memory ; GPU=0 ; expr=cudaMalloc(&p)"
    )
