"""Models that are code: what their code is given, what may come back, and how its failures are told."""

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import ml_dtypes
import numpy as np
import pytest

from backends.errors import (
    BackendError,
    DeviceFaultError,
    ExecutionError,
    LoadError,
    OutOfMemoryError,
    WrongRowsError,
)
from backends.ports import Executor, Placement
from backends.registry import create_executors
from models.inference import Array
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec
from tests.backends.builders import model, payload, tensor

IDENTITY = """\
def execute(inputs):
    return {"y": inputs["x"]}
"""


ON_CPU = Placement()


def python_model(
    root: Path,
    code: str,
    *,
    outputs: Sequence[TensorSpec] = (tensor("y"),),
    max_batch_rows: int = 32,
    **parameters: str,
) -> ModelSpec:
    file = root / "m" / "1" / "model.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dedent(code))
    return model(backend="python", file=file, outputs=outputs, max_batch_rows=max_batch_rows, **parameters)


@contextmanager
def loaded(spec: ModelSpec, placement: Placement = ON_CPU, *, warm_up: Sequence[int] = ()) -> Iterator[Executor]:
    """The only lane of the only instance."""
    with loaded_lanes(spec, placement, warm_up=warm_up) as (executor,):
        yield executor


@contextmanager
def loaded_lanes(
    spec: ModelSpec, placement: Placement = ON_CPU, *, warm_up: Sequence[int] = ()
) -> Iterator[Sequence[Executor]]:
    (lanes,) = create_executors(spec, placement)
    try:
        for lane in lanes:
            lane.load()
            lane.warm_up(warm_up)
        yield lanes
    finally:
        for lane in lanes:
            lane.close()


def answer_of(spec: ModelSpec, *rows: int) -> Array:
    with loaded(spec) as executor:
        return executor.run(payload(*rows), len(rows))["y"]


def traces() -> tuple[list[str], set[str], set[str]]:
    modules = {name for name in sys.modules if name.startswith("shoal_model")}
    return list(sys.path), modules, {thread.name for thread in threading.enumerate()}


def load_failure(spec: ModelSpec) -> str:
    with pytest.raises(LoadError) as caught, loaded(spec):
        pass
    return str(caught.value)


def run_failure(spec: ModelSpec, kind: type[BackendError] = ExecutionError) -> str:
    with loaded(spec) as executor, pytest.raises(kind) as caught:
        executor.run(payload(1, 2), 2)
    assert type(caught.value) is kind
    return str(caught.value)


FORMS = {
    "class": """\
        class Model:
            def execute(self, inputs):
                return {"y": inputs["x"] * 2}
        """,
    "class with context": """\
        class Model:
            def __init__(self, context):
                self.factor = int(context.parameters["factor"])
            def execute(self, inputs):
                return {"y": inputs["x"] * self.factor}
        """,
    "function": """\
        def execute(inputs):
            return {"y": inputs["x"] * 2}
        """,
    "async class": """\
        import asyncio
        class Model:
            def __init__(self):
                self.loop = asyncio.get_running_loop()
            async def execute(self, inputs):
                await asyncio.sleep(0)
                assert asyncio.get_running_loop() is self.loop
                return {"y": inputs["x"] * 2}
        """,
    "async function": """\
        async def execute(inputs):
            return {"y": inputs["x"] * 2}
        """,
}


@pytest.mark.parametrize("code", FORMS.values(), ids=FORMS)
def test_a_model_is_a_class_or_a_function_async_or_not(tmp_path: Path, code: str) -> None:
    answer = answer_of(python_model(tmp_path, code, factor="2"), 3, 4)
    np.testing.assert_array_equal(answer, [[6, 6], [8, 8]])


def test_the_context_says_what_the_model_is_and_where_it_runs(tmp_path: Path) -> None:
    code = """\
        import json
        class Model:
            def __init__(self, context):
                fields = {name: str(getattr(context, name)) for name in context.__dataclass_fields__}
                (context.directory / "context.json").write_text(json.dumps(fields))
            def execute(self, inputs):
                return {}
        """
    spec = python_model(tmp_path, code, outputs=[tensor("y", DataType.FP16, (-1, 3))], color="red")
    with loaded(spec, Placement(device="gpu3", cores=4)):
        text = (spec.file.parent / "context.json").read_text()
    assert f'"name": "m", "version": "1", "directory": "{spec.file.parent}", "device": "cuda:0", "cores": "4"' in text
    assert '"parameters": "{\'color\': \'red\'}", "max_batch_size": "32"' in text
    assert "(TensorDescription(name='y', datatype='FP16', dtype=dtype('float16'), dims=(-1, 3)),)" in text


def test_cores_are_divided_among_instances_and_each_has_a_model_of_its_own(tmp_path: Path) -> None:
    code = """\
        import numpy as np
        class Model:
            def __init__(self, context):
                self.calls, self.cores = 0, context.cores
            def execute(self, inputs):
                self.calls += 1
                return {"y": np.full((len(inputs["x"]), 2), self.calls * 10 + self.cores)}
        """
    (first,), (second,) = create_executors(python_model(tmp_path, code), Placement(instances=2, cores=5))
    first.load()
    second.load()
    answers = [executor.run(payload(0), 1)["y"][0, 0] for executor in (first, first, second)]
    first.close()
    second.close()
    assert answers == [12, 22, 12]


def test_modules_beside_the_model_can_be_imported_even_late(tmp_path: Path) -> None:
    code = """\
        import shoal_test_helper
        def execute(inputs):
            from shoal_test_late import offset
            return {"y": shoal_test_helper.double(inputs["x"]) + offset}
        """
    spec = python_model(tmp_path, code)
    (spec.file.parent / "shoal_test_helper.py").write_text("def double(x):\n    return x * 2\n")
    (spec.file.parent / "shoal_test_late.py").write_text("offset = 1\n")
    np.testing.assert_array_equal(answer_of(spec, 3), [[7, 7]])


def test_loading_leaves_no_trace_of_the_model_after_closing(tmp_path: Path) -> None:
    before = traces()
    with loaded(python_model(tmp_path, FORMS["async function"])):
        assert traces() != before
    assert traces() == before


def test_an_edited_file_is_loaded_again_as_it_is_now(tmp_path: Path) -> None:
    spec = python_model(tmp_path, "def execute(inputs):\n    return {'y': inputs['x'] + 1}\n")
    with loaded(spec) as executor:
        executor.close()
        spec.file.write_text(spec.file.read_text().replace("+ 1", "+ 2"))  # same size, most likely the same second
        executor.load()
        np.testing.assert_array_equal(executor.run(payload(1), 1)["y"], [[3, 3]])


def test_inputs_cannot_be_written_to(tmp_path: Path) -> None:
    code = """\
        def execute(inputs):
            inputs["x"] += 1
            return {"y": inputs["x"]}
        """
    assert "output array is read-only" in run_failure(python_model(tmp_path, code))


def test_bytes_come_in_and_go_out_as_object_arrays_of_bytes(tmp_path: Path) -> None:
    code = """\
        import numpy as np
        def execute(inputs):
            assert all(type(element) is bytes for element in inputs["x"].ravel())
            upper = [[element.upper() for element in row] for row in inputs["x"]]
            return {"y": np.array(upper, dtype=object), "text": np.array([["\\u00e9", "b"]]), "s": np.array([[b"c"]])}
        """
    outputs = [tensor(name, DataType.BYTES, (-1,)) for name in ("y", "text", "s")]
    with loaded(python_model(tmp_path, code, outputs=outputs)) as executor:
        answer = executor.run({"x": np.array([[b"a\xff", b""]], object)}, 1)
    assert answer["y"].tolist() == [[b"A\xff", b""]]
    assert answer["text"].tolist() == [["é".encode(), b"b"]]
    assert answer["s"].tolist() == [[b"c"]]


@pytest.mark.parametrize(
    ("declared", "expression", "dtype"),
    [
        (DataType.INT64, "x.astype('int32')", np.int64),
        (DataType.FP64, "x.astype('float32')", np.float64),
        (DataType.FP32, "x.astype('>f4')", np.float32),
        (DataType.INT8, "x > 0", np.int8),
        (DataType.BF16, "x.astype(ml_dtypes.bfloat16)", ml_dtypes.bfloat16),
        (DataType.FP16, "x.astype('float16')[:, ::-1]", np.float16),
    ],
)
def test_what_converts_without_loss_is_converted(
    tmp_path: Path, declared: DataType, expression: str, dtype: type
) -> None:
    code = f"import ml_dtypes\ndef execute(inputs):\n    x = inputs['x']\n    return {{'y': {expression}}}\n"
    answer = answer_of(python_model(tmp_path, code, outputs=[tensor("y", declared)]), 1)
    assert answer.dtype == dtype
    np.testing.assert_array_equal(answer.astype(np.int64), [[1, 1]])


def test_a_model_without_batch_dimension_answers_the_declared_shape(tmp_path: Path) -> None:
    with loaded(python_model(tmp_path, IDENTITY, max_batch_rows=0)) as executor:
        np.testing.assert_array_equal(executor.run({"x": np.array([1, 2])}, 1)["y"], [1, 2])
        with pytest.raises(ExecutionError, match=r"output 'y' has the shape \[3\], declared \[2\]"):
            executor.run({"x": np.array([1, 2, 3])}, 1)


WRONG_ANSWERS = {
    "nothing": ("None", "execute returned None, expected a dict of arrays by output name"),
    "no dict": ("x", "execute returned of type ndarray, expected a dict"),
    "coroutine": ("asyncio.sleep(0)", "execute returned of type coroutine, expected a dict"),
    "other name": ("{'z': x}", "execute returned the outputs 'z', expected 'y'"),
    "one more": ("{'y': x, 'z': x}", "execute returned the outputs 'y', 'z', expected 'y'"),
    "no output": ("{}", "execute returned the outputs none, expected 'y'"),
    "list": ("{'y': [[1, 2]]}", "output 'y' is of type list, expected a numpy array"),
    "wider type": ("{'y': x.astype('float64')}", "elements of type float64, expected int64 (TYPE_INT64); convert"),
    "sign": ("{'y': x.astype('uint64')}", "elements of type uint64, expected int64"),
    "objects": ("{'y': x.astype(object)}", "elements of type object, expected int64"),
    "row shape": ("{'y': x[:, :1]}", "output 'y' has rows of shape [1], declared [2]"),
}  # fmt: skip


@pytest.mark.parametrize(("expression", "text"), WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
def test_an_answer_that_was_not_declared_fails_the_batch(tmp_path: Path, expression: str, text: str) -> None:
    code = f"import asyncio\ndef execute(inputs):\n    x = inputs['x']\n    return {expression}\n"
    assert text in run_failure(python_model(tmp_path, code))


@pytest.mark.parametrize(("expression", "rows"), [("x[:1]", 1), ("x.sum()[None][0:0]", 0), ("np.array(5)", 0)])
def test_another_number_of_rows_is_told(tmp_path: Path, expression: str, rows: int) -> None:
    code = f"import numpy as np\ndef execute(inputs):\n    x = inputs['x']\n    return {{'y': {expression}}}\n"
    text = run_failure(python_model(tmp_path, code), WrongRowsError)
    assert text == f"output 'y' has {rows} rows for a batch of 2"


def test_an_element_that_is_no_bytes_is_told(tmp_path: Path) -> None:
    code = "def execute(inputs):\n    return {'y': inputs['x'].astype(object)}\n"
    text = run_failure(python_model(tmp_path, code, outputs=[tensor("y", DataType.BYTES)]))
    assert text == "output 'y' has an element of type int, expected bytes, or str, of TYPE_STRING"


def test_a_text_with_half_a_character_is_told(tmp_path: Path) -> None:
    code = "import numpy as np\ndef execute(inputs):\n    return {'y': np.array([['a'], ['\\ud800']], object)}\n"
    text = run_failure(python_model(tmp_path, code, outputs=[tensor("y", DataType.BYTES, (1,))]))
    assert (
        text == r"output 'y' has a str with the half character '\ud800' at its position 0, expected text that is UTF-8"
    )


def test_code_may_run_the_event_loop_of_its_thread(tmp_path: Path) -> None:
    code = """\
        import asyncio
        class Model:
            def __init__(self):
                self.loop = asyncio.get_event_loop()
            def execute(self, inputs):
                assert asyncio.get_event_loop() is self.loop
                return {"y": self.loop.run_until_complete(asyncio.sleep(0, inputs["x"]))}
        """
    with ThreadPoolExecutor(1) as thread:  # of the main thread it is true anyway
        found = thread.submit(answer_of, python_model(tmp_path, code), 5).result()
    np.testing.assert_array_equal(found, [[5, 5]])


def test_code_may_close_the_event_loop_of_its_thread(tmp_path: Path) -> None:
    code = IDENTITY + "import asyncio\nasyncio.get_event_loop().close()\n"
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(answer_of, python_model(tmp_path, code), 5).result()
    np.testing.assert_array_equal(found, [[5, 5]])


RAISED = {
    "an error": ("raise ValueError('bad\\n row')", ExecutionError, "ValueError: bad row (at model.py:5)"),
    "no text": ("raise KeyError", ExecutionError, "KeyError (at model.py:5)"),
    "exit": ("raise SystemExit(3)", ExecutionError, "SystemExit: 3 (at model.py:5)"),
    "interrupt": ("raise KeyboardInterrupt", ExecutionError, "KeyboardInterrupt (at model.py:5)"),
    "cancelled": ("raise asyncio.CancelledError", ExecutionError, "CancelledError (at model.py:5)"),
    "unprintable": ("raise Mute", ExecutionError, "Mute: an error whose text cannot be made (at model.py:5)"),
    "unprintable error of an engine": (
        "raise type('Broken', (RuntimeError,), {'__str__': None})", ExecutionError,
        "Broken: an error whose text cannot be made (at model.py:5)",
    ),
    "endless text": ("raise ValueError('x' * 9999)", ExecutionError, f"ValueError: {'x' * 2000} (at model.py:5)"),
    "inside a library": ("np.zeros(2).reshape(3)", ExecutionError, "ValueError: cannot reshape array of size 2 into "
                         "shape (3,) (at model.py:5)"),
    "a file": ("open(__file__ + '.txt')", ExecutionError, "FileNotFoundError: [Errno 2] No such file or directory: "
               "'model.py.txt' (at model.py:5)"),
    "its directory": (
        "import os; raise ValueError(f'{os.path.dirname(__file__)}, {os.path.dirname(os.path.dirname(__file__))}.')",
        ExecutionError, "ValueError: ., .. (at model.py:5)",
    ),
    "control characters": (r"raise ValueError('\x1b[31m\x00\x85\x9b')", ExecutionError, "ValueError: \\x1b[31m\\x00 "
                           "\\x9b (at model.py:5)"),
    "memory": ("raise MemoryError", OutOfMemoryError, "MemoryError (at model.py:5)"),
    "GPU memory": ("raise RuntimeError('CUDA out of memory')", OutOfMemoryError, "RuntimeError: CUDA out of memory "
                   "(at model.py:5)"),
    "GPU fault": ("raise RuntimeError('CUDA error: device-side assert triggered')", DeviceFaultError, "RuntimeError: "
                  "CUDA error: device-side assert triggered (at model.py:5)"),
    "a client's words": ("raise ValueError('device-side assert triggered')", ExecutionError, "ValueError: device-side "
                         "assert triggered (at model.py:5)"),
}  # fmt: skip


@pytest.mark.parametrize("keyword", ["def", "async def"])
@pytest.mark.parametrize(("statement", "kind", "text"), RAISED.values(), ids=RAISED)
def test_an_error_of_the_code_is_told_by_type_text_and_line(
    tmp_path: Path, keyword: str, statement: str, kind: type[BackendError], text: str
) -> None:
    code = f"""\
import asyncio, numpy as np
class Mute(Exception):
    __str__ = None
{keyword} execute(inputs):
    {statement}
"""
    assert run_failure(python_model(tmp_path, code), kind) == text


def test_a_failed_batch_leaves_the_model_usable_and_keeps_nothing_of_the_batch(tmp_path: Path) -> None:
    code = """\
        async def execute(inputs):
            if inputs["x"].max() > 9:
                raise SystemExit
            return {"y": inputs["x"]}
        """
    with loaded(python_model(tmp_path, code)) as executor:
        with pytest.raises(ExecutionError) as caught:
            executor.run(payload(10), 1)
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
        np.testing.assert_array_equal(executor.run(payload(5), 1)["y"], [[5, 5]])


def test_a_task_that_exits_does_not_stop_an_async_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = """\
        import asyncio
        async def leave():
            raise SystemExit
        async def execute(inputs):
            task = asyncio.create_task(leave())
            await asyncio.wait([task])
            return {"y": inputs["x"]}
        """
    np.testing.assert_array_equal(answer_of(python_model(tmp_path, code), 5), [[5, 5]])
    assert "a task of the model ended its event loop, which goes on" in caplog.text


def test_the_line_is_in_the_users_innermost_file(tmp_path: Path) -> None:
    spec = python_model(tmp_path, "import shoal_test_blame\n\ndef execute(inputs):\n    shoal_test_blame.fail()\n")
    (spec.file.parent / "shoal_test_blame.py").write_text("def fail():\n    raise ValueError('no')\n")
    assert run_failure(spec) == "ValueError: no (at shoal_test_blame.py:2)"


def test_a_traceback_is_logged_once_for_each_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = "def execute(inputs):\n    raise ValueError('no')\n"
    with loaded(python_model(tmp_path, code)) as executor, caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(ExecutionError):
                executor.run(payload(1), 1)
    (message,) = caplog.messages
    assert message.startswith("model 'm' version 1: ValueError: no; the traceback, told once:\nTraceback")
    assert "line 2, in execute" in message
    assert "backends/" not in message


LOAD_FAILURES = {
    "syntax": ("def execute(inputs:\n", "SyntaxError: '(' was never closed (at model.py:1)"),
    "missing package": ("import nothing_like_it\n", "ModuleNotFoundError: No module named 'nothing_like_it' (at mo"),
    "wrong name": ("\nfrom numpy import nothing\n", "'nothing' from 'numpy' (numpy/__init__.py) (at model.py:2)"),
    "exit": ("raise SystemExit(1)\n", "SystemExit: 1 (at model.py:1)"),
    "nothing": ("x = 1\n", "model.py: found neither of them, expected a class Model with a method execute"),
    "no execute": ("class Model: pass\n", "found a class Model without execute, expected"),
    "both": (IDENTITY + "class Model:\n    execute = execute\n", "found a class Model and a function execute"),
    "arguments": (
        "class Model:\n    def execute(self, x, z): pass\n", "found execute(x, z), expected one argument beside self",
    ),
    "constructor": (
        "class Model:\n    def __init__(self, context): 1 / 0\n    def execute(self, inputs): pass\n",
        "ZeroDivisionError: division by zero (at model.py:2)",
    ),
    "triton": ("class TritonPythonModel:\n    def execute(self, requests): pass\n", "found Triton's TritonPythonModel"),
    "triton behind a star": (
        "class TritonPythonModel: pass\n", "when the text of model.py gives something the name TritonPythonModel: by",
    ),
    "triton import": ("import triton_python_backend_utils as pb_utils\n", "found an import of Triton's module"),
    "torchserve": ("def handle(data, context): pass\n", "found TorchServe's handle"),
    "torchserve import": ("from ts.torch_handler.base_handler import BaseHandler\n", "TorchServe's module 'ts'"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "text"), LOAD_FAILURES.values(), ids=LOAD_FAILURES)
def test_code_that_is_no_model_is_refused(tmp_path: Path, code: str, text: str) -> None:
    failure = load_failure(python_model(tmp_path, code))
    assert failure.startswith("model 'm' version 1: ")
    assert text in failure
    assert str(tmp_path) not in failure


def test_warming_up_and_closing_are_the_models_own(tmp_path: Path) -> None:
    code = """\
        class Model:
            def __init__(self, context):
                self.log = context.directory / "log"
                self.note("made")
            def note(self, text):
                with self.log.open("a") as file:
                    file.write(text + "\\n")
            async def warm_up(self, sizes):
                self.note(f"warm {sizes}")
            def execute(self, inputs):
                return {"y": inputs["x"]}
            def close(self):
                self.note("closed")
        """
    spec = python_model(tmp_path, code)
    with loaded(spec, warm_up=(1, 2)) as executor:
        executor.close()
        executor.close()
    assert (spec.file.parent / "log").read_text().splitlines() == ["made", "warm [1, 2]", "closed"]


def test_a_model_that_cannot_warm_up_is_refused(tmp_path: Path) -> None:
    code = IDENTITY + "def warm_up(sizes):\n    raise OSError('no weights')\n"
    with pytest.raises(LoadError, match=r"model 'm' version 1: OSError: no weights \(at model.py:4\)"):  # noqa: SIM117
        with loaded(python_model(tmp_path, code), warm_up=(1,)):
            pass


def test_an_error_while_closing_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with loaded(python_model(tmp_path, IDENTITY + "def close():\n    raise OSError('busy')\n")):
        pass
    assert "OSError: busy" in caplog.text


MEETING = {
    "async": """\
        import asyncio
        class Model:
            def __init__(self):
                self.here, self.all_here = 0, asyncio.Event()
            async def execute(self, inputs):
                self.here += 1
                if self.here == 3:
                    self.all_here.set()
                await self.all_here.wait()
                return {"y": inputs["x"]}
        """,
    "thread-safe": """\
        import threading
        class Model:
            thread_safe = True
            def __init__(self):
                self.all_here = threading.Barrier(3, timeout=10)
            def execute(self, inputs):
                self.all_here.wait()
                return {"y": inputs["x"]}
        """,
}


@pytest.mark.parametrize("code", MEETING.values(), ids=MEETING)
async def test_several_batches_are_in_the_model_at_once_if_it_says_so(tmp_path: Path, code: str) -> None:
    with loaded_lanes(python_model(tmp_path, code, max_in_flight="3")) as lanes, ThreadPoolExecutor(3) as threads:
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(threads, lane.run, payload(n), 1) for n, lane in enumerate(lanes)]
        answers = await asyncio.wait_for(asyncio.gather(*calls), timeout=10)
    assert [answer["y"][0, 0] for answer in answers] == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "parameter 'max_in_flight' is '0', expected a number of batches from 1 to 256"),
        ("many", "parameter 'max_in_flight' is 'many', expected a number"),
        ("2", "found the parameter max_in_flight = 2 with an execute for one batch at a time, expected `async def"),
    ],
)
def test_several_batches_need_a_model_that_can_take_them(tmp_path: Path, value: str, text: str) -> None:
    spec = python_model(tmp_path, IDENTITY, max_in_flight=value)
    with pytest.raises(LoadError) as caught, loaded_lanes(spec):
        pass
    assert text in str(caught.value)
