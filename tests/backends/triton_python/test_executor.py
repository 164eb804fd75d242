"""Triton python models: requests one by one, what they may be answered, and how failures are told."""

import json
import logging
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from backends.batch_run import BatchRunner
from backends.errors import ExecutionError, LoadError
from backends.memory_cap import MemoryCap
from backends.ports import Placement
from batching.clock import MonotonicClock
from models.inference import InferRequest
from models.request_rows import RequestInfo, attach
from models.response_rows import parameters_of
from models.spec import ModelSpec
from models.tensors import DataType
from tests.backends.builders import payload, tensor
from tests.backends.triton_python.builders import (
    HEAD,
    IDENTITY,
    answers,
    body,
    loaded,
    request,
    texts,
    told,
    triton_model,
)


def load_failure(spec: ModelSpec) -> str:
    with pytest.raises(LoadError) as caught, loaded(spec):
        pass
    return str(caught.value)


def run_failure(spec: ModelSpec) -> str:
    with loaded(spec) as executor, pytest.raises(ExecutionError) as caught:
        executor.run(payload(1, 2), 2)
    return str(caught.value)


def both(root: Path, statements: str) -> list[object]:
    """What the two requests of one batch are answered, one row and two rows."""
    with loaded(triton_model(root, body(statements))) as executor:
        return [told(answer) for answer in answers(executor, request(1), request(2, 3))]


SHOWS_ALL = body("""
    import json
    shown = [
        json.dumps([len(requests), r.request_id(), r.parameters(), r.timeout(), *r.requested_output_names(),
                    r.flags(), r.correlation_id(), len(x), [t.name() for t in r.inputs()], r.is_cancelled()])
        for r, x in zip(requests, xs)
    ]
    return [respond(np.array([[text]] * len(x), dtype=object)) for text, x in zip(shown, xs)]
""")


def test_each_request_comes_with_its_own_rows_id_and_parameters(tmp_path: Path) -> None:
    spec = triton_model(tmp_path, SHOWS_ALL, outputs=[tensor("y", DataType.BYTES, (1,))])
    with loaded(spec) as executor:
        found = answers(executor, request(1, id="a", colour="red"), request(2, 3, id="b", outputs=["y"], n=2))
    first, second, third = [json.loads(text) for answer in found for text in texts(answer["y"])]
    assert first == [2, "a", '{"colour":"red"}', 1_000, "y", 0, 0, 1, ["x"], False]
    assert second == third == [2, "b", '{"n":2}', 2_000, "y", 0, 0, 2, ["x"], False]


SEQUENCES: dict[str, tuple[dict[str, object], object]] = {
    "none": ({}, [0, 0]),
    "start": ({"sequence_id": 2**64 - 1, "sequence_start": True}, [2**64 - 1, 1]),
    "end": ({"sequence_id": 5, "sequence_end": True}, [5, 2]),
    "both, named": ({"sequence_id": "a", "sequence_start": True, "sequence_end": True}, ["a", 3]),
    "named by nothing": ({"sequence_id": ""}, ["", 0]),
}


@pytest.mark.parametrize(("said", "expected"), SEQUENCES.values(), ids=SEQUENCES)
def test_a_request_says_where_in_which_sequence_it_is(
    tmp_path: Path, said: dict[str, object], expected: object
) -> None:
    code = body("""
        import json
        return [respond(np.array([[json.dumps([r.correlation_id(), r.flags()])]], object)) for r in requests]
    """)
    asked = InferRequest(model="m", inputs={}, **said)  # type: ignore[arg-type]
    with loaded(triton_model(tmp_path, code, outputs=[tensor("y", DataType.BYTES, (1,))])) as executor:
        outputs = executor.run(attach({"x": np.array([[1, 1]])}, 1, RequestInfo.of(asked)), 1)
    assert json.loads(texts(outputs["y"])[0]) == expected


TELLS = """
    def told(x):
        parameters = {"colour": "r\u00f6d", "n": -3, "is": True} if (x > 1).all() else {}
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", x)], parameters=parameters)
    return [told(x) for x in xs]
"""


def test_the_parameters_of_a_response_come_with_its_own_request(tmp_path: Path) -> None:
    with loaded(triton_model(tmp_path, body(TELLS))) as executor:
        found = answers(executor, request(1), request(2, 3), request(4), padding=2)
    assert [told(answer) for answer in found] == [[[1, 1]], [[2, 2], [3, 3]], [[4, 4]]]
    expected = {"colour": "röd", "n": -3, "is": True}
    assert [parameters_of(answer) for answer in found] == [{}, expected, expected]


def test_a_model_without_batch_dimension_may_answer_with_parameters(tmp_path: Path) -> None:
    with loaded(triton_model(tmp_path, body(TELLS), max_batch_rows=0)) as executor:
        outputs = executor.run(attach({"x": np.array([2, 3])}, 1), 1)
    assert outputs["y"].tolist() == [2, 3]
    assert parameters_of(outputs) == {"colour": "röd", "n": -3, "is": True}


def test_outputs_come_in_the_order_of_the_response(tmp_path: Path) -> None:
    code = body('return [pb_utils.InferenceResponse([pb_utils.Tensor(name, x) for name in "zy"]) for x in xs]')
    with loaded(triton_model(tmp_path, code, outputs=[tensor("y"), tensor("z")])) as executor:
        assert list(executor.run(request(1), 1)) == ["z", "y"]


def test_padding_is_in_no_request(tmp_path: Path) -> None:
    code = body("return [respond(x * 10 + sum(map(len, xs))) for x in xs]")
    with loaded(triton_model(tmp_path, code)) as executor:
        found = answers(executor, request(1), request(2, 3), padding=5)
    assert [told(answer) for answer in found] == [[[13, 13]], [[23, 23], [33, 33]]]


def test_a_batch_that_nobody_took_apart_is_one_request(tmp_path: Path) -> None:
    code = body("return [respond(x * 10 + len(requests)) for x in xs]")
    with loaded(triton_model(tmp_path, code)) as executor:
        assert executor.run(payload(1, 2), 2)["y"].tolist() == [[11, 11], [21, 21]]


def test_a_model_without_batch_dimension_gets_one_request_with_the_declared_shape(tmp_path: Path) -> None:
    code = body("return [respond(x + int(requests[0].request_id())) for x in xs]")
    with loaded(triton_model(tmp_path, code, max_batch_rows=0)) as executor:
        inputs = attach({"x": np.array([1, 2])}, 1, RequestInfo(request_id="7"))
        assert executor.run(inputs, 1)["y"].tolist() == [8, 9]


def test_inputs_belong_to_the_model_which_may_keep_and_change_them(tmp_path: Path) -> None:
    code = f"""{HEAD}
class TritonPythonModel:
    kept = []
    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "x").as_numpy()
        self.kept.append(x)
        x += 1
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", self.kept[0])])]
"""
    with loaded(triton_model(tmp_path, code)) as executor:
        inputs = payload(1)
        assert executor.run(inputs, 1)["y"].tolist() == [[2, 2]]
        inputs["x"][:] = 50  # as the next batch overwrites the memory of the last one
        assert executor.run(inputs, 1)["y"].tolist() == [[2, 2]]
        assert inputs["x"].tolist() == [[50, 50]]


def test_rows_of_different_shapes_are_answered_to_requests_of_one_batch(tmp_path: Path) -> None:
    spec = triton_model(
        tmp_path, body("return [respond(np.tile(x, len(x))) for x in xs]"), outputs=[tensor("y", dims=(-1,))]
    )
    with loaded(spec) as executor:
        found = answers(executor, request(1), request(2, 3), padding=1)
    assert [told(answer) for answer in found] == [[[1, 1]], [[2, 2, 2, 2], [3, 3, 3, 3]]]


def test_outputs_that_a_request_does_not_want_may_be_left_out(tmp_path: Path) -> None:
    code = f"""{HEAD}
class TritonPythonModel:
    def execute(self, requests):
        def tensors(request):
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            return [pb_utils.Tensor(name, x) for name in request.requested_output_names()]
        return [pb_utils.InferenceResponse(tensors(request)) for request in requests]
"""
    spec = triton_model(tmp_path, code, outputs=[tensor("y"), tensor("z")])
    with loaded(spec) as executor:
        found = answers(executor, request(1, outputs=["z"]), request(2), request(3, outputs=["y"]))
    assert [sorted(answer) for answer in found] == [["z"], ["y", "z"], ["y"]]


def test_outputs_that_code_leaves_out_are_missing_in_the_answer_and_undeclared_ones_dropped(tmp_path: Path) -> None:
    code = body("""
        tensors = [[pb_utils.Tensor("undeclared", x), pb_utils.Tensor("y", x)][: len(x)] for x in xs]
        return [pb_utils.InferenceResponse(each, parameters={"rows": len(x)}) for each, x in zip(tensors, xs)]
    """)
    with loaded(triton_model(tmp_path, code)) as executor:
        alone = executor.run(request(1), 1)
        found = answers(executor, request(1), request(2, 3), padding=1)
    assert ("y" in alone, parameters_of(alone)) == (False, {"rows": 1})
    assert [["y" in answer, "undeclared" in answer] for answer in found] == [[False, False], [True, False]]


CODES = {
    "UNKNOWN": "CodeUnknownError",
    "INTERNAL": "CodeError",
    "NOT_FOUND": "CodeNotFoundError",
    "INVALID_ARG": "CodeInvalidArgumentError",
    "UNAVAILABLE": "CodeUnavailableError",
    "UNSUPPORTED": "CodeUnsupportedError",
    "ALREADY_EXISTS": "CodeAlreadyExistsError",
    "CANCELLED": "CodeCancelledError",
}


@pytest.mark.parametrize(("code", "kind"), CODES.items(), ids=CODES)
def test_an_error_as_an_answer_fails_its_own_request(tmp_path: Path, code: str, kind: str) -> None:
    error = f"pb_utils.TritonError('no such colour', pb_utils.TritonError.{code})"
    found = both(tmp_path, f"return [pb_utils.InferenceResponse(error={error}), respond(xs[1])]")
    assert found == [f"{kind}: no such colour", [[2, 2], [3, 3]]]


def test_a_request_that_fails_is_not_run_again_for_others(tmp_path: Path) -> None:
    code = body("""
        self.calls = getattr(self, "calls", 0) + 1
        bad = pb_utils.InferenceResponse(error=pb_utils.TritonError("bad"))
        return [bad if (x == 2).any() else respond(x * 0 + self.calls) for x in xs]
    """)
    spec = triton_model(tmp_path, code)
    with loaded(spec) as executor:
        runner = BatchRunner(spec, executor, MonotonicClock(), (), MemoryCap(8))
        run = runner.run([request(1), request(2), request(3)])
    assert [told(result) for result in run.results] == [[[1, 1]], "CodeError: bad", [[1, 1]]]


SENDERS = {
    "at once": "for r, x in zip(requests, xs): r.get_response_sender().send(respond(x), FINAL)\nreturn [None, None]",
    "nothing returned": "for r, x in zip(requests, xs): r.get_response_sender().send(respond(x), FINAL)",
    "flag after": """
        for r, x in zip(requests, xs):
            r.get_response_sender().send(respond(x))
            r.get_response_sender().send(flags=FINAL)
        return None""",
    "one of two": "requests[0].get_response_sender().send(respond(xs[0]), FINAL)\nreturn [None, respond(xs[1])]",
    "later, by a thread": """
        import threading
        def answer():
            for sender, x in zip(senders, xs): sender.send(respond(x), FINAL)
        senders = [r.get_response_sender() for r in requests]
        self.thread = threading.Thread(target=answer)
        self.thread.start()
        return None""",
}


@pytest.mark.parametrize("statements", SENDERS.values(), ids=SENDERS)
def test_a_request_may_be_answered_by_its_sender(tmp_path: Path, statements: str) -> None:
    code = body("FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL\n" + dedent(statements).lstrip())
    with loaded(triton_model(tmp_path, code)) as executor:
        found = [told(answer) for answer in answers(executor, request(1), request(2, 3))]
    assert found == [[[1, 1]], [[2, 2], [3, 3]]]


WRONG = {
    "no list": ("respond(xs[0])", "execute returned of type InferenceResponse, expected a list with a pb_utils.Inf"),
    "too few": ("[respond(xs[0])][:0]", "Request(s) size is:1, and InferenceResponse(s) size is:0\n"),
    "another thing": ("[xs[0]]", "execute returned a response of type ndarray, expected"),
    "no answer": ("[None]", "returned None for the request and did not ask for its response sender"),
    "an output twice": (
        "[pb_utils.InferenceResponse([pb_utils.Tensor('y', xs[0])] * 2)]",
        "the response has the output 'y' twice, expected it once",
    ),
    "element type": ("[respond(xs[0] * 0.5)]", "'y' has elements of type float64, expected int64 (TYPE_INT64)"),
    "row shape": ("[respond(xs[0][:, :1])]", "output 'y' has rows of shape [1], declared [2]"),
    "rows": ("[respond(xs[0][:1])]", "output 'y' has 1 rows for a batch of 2"),
    "no array": ("[respond([[1, 2]])]", "'y' is of type list, expected a numpy array\n\nAt:\n  model.py(8): resp"),
    "no tensor": ("[pb_utils.InferenceResponse([xs[0]])]", "an output is of type ndarray, expected a pb_utils.Tensor"),
    "no error": ("[pb_utils.InferenceResponse(error='x')]", "of type str, expected a pb_utils.TritonError"),
    "parameter names": ("[pb_utils.InferenceResponse([], None, {1: 2})]", "keys to have type str, found type"),
    "parameters": (
        "[pb_utils.InferenceResponse([], None, {'a': 0.5})]",
        "Expect parameters values to have type bool/int/str, found type <class 'float'>",
    ),
    "parameters as text": ("[pb_utils.InferenceResponse([], None, '{}')]", "are of type str, expected a dict"),
    "large parameter": (
        "[pb_utils.InferenceResponse([pb_utils.Tensor('y', xs[0])], None, {'a': 2**64})]",
        "the parameters of the response cannot be handed on: Integer exceeds 64-bit range",
    ),
    "coroutine": ("__import__('asyncio').sleep(0)", "execute returned of type coroutine, expected a list"),
    "sender without response": (
        "requests[0].get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)",
        "ended the request without a response, expected exactly one",
    ),
    "two responses": (
        "[requests[0].get_response_sender().send(respond(x)) for x in (xs[0], xs[0])]",
        "a second response to one request, expected one: models that stream",
    ),
    "after the last": (
        "[requests[0].get_response_sender().send(respond(xs[0]), 1) for _ in range(2)]",
        "the final response of this request has been sent before",
    ),
    "raises": (
        "1 / 0",
        "Failed to process the request(s) for model 'm_0', message: ZeroDivisionError: division by zero\n\nAt:\n"
        "  model.py(9): execute\n",
    ),
    "raises Triton's": (
        "(_ for _ in ()).throw(pb_utils.TritonModelException('no'))",
        "TritonModelException: no\n\nAt:\n  model.py(9): <genexpr>\n  model.py(9): execute\n",
    ),
    "another model": (
        "pb_utils.InferenceRequest('other', ['y'], []).exec()",
        "InferenceRequest.exec: calling other models from a model's code is not served",
    ),
    "control": ("pb_utils.load_model('other')", "load_model: a model's code cannot see or control other models"),
    "again": (
        "requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)",
        "a request is not scheduled a second time here",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("expression", "text"), WRONG.values(), ids=WRONG)
def test_what_is_no_response_is_told(tmp_path: Path, expression: str, text: str) -> None:
    assert text in run_failure(triton_model(tmp_path, body(f"return {expression}")))


def test_a_wrong_response_fails_its_own_request(tmp_path: Path) -> None:
    found = both(tmp_path, "return [respond(xs[0][:0]), respond(xs[1])]")
    assert found == ["WrongRowsError: output 'y' has 0 rows for a batch of 1", [[2, 2], [3, 3]]]


def test_texts_come_as_bytes_and_may_go_as_either(tmp_path: Path) -> None:
    code = body("""
        assert all(type(element) is bytes for element in xs[0].ravel())
        return [respond(np.array([[x[0, 0].decode() + "é", x[0, 0]]], dtype=object)) for x in xs]
    """)
    spec = triton_model(
        tmp_path, code, inputs=[tensor("x", DataType.BYTES, (1,))], outputs=[tensor("y", DataType.BYTES)]
    )
    with loaded(spec) as executor:
        assert executor.run({"x": np.array([[b"a"]], object)}, 1)["y"].tolist() == [["aé".encode(), b"a"]]


def test_a_text_with_half_a_character_fails_its_own_request(tmp_path: Path) -> None:
    code = body(r"return [respond(np.array([['a\udc00' if x[0, 0] == b'bad' else 'good']], object)) for x in xs]")
    texts = {"inputs": [tensor("x", DataType.BYTES, (1,))], "outputs": [tensor("y", DataType.BYTES, (1,))]}
    with loaded(triton_model(tmp_path, code, **texts)) as executor:
        found = answers(executor, *(attach({"x": np.array([[each]], object)}, 1) for each in (b"bad", b"fine")))
    assert [told(each) for each in found] == [
        "ExecutionError: output 'y' has a str with the half character '\\udc00' at its position 1, expected text that "
        "is UTF-8",
        [[b"good"]],
    ]


INITIALIZES = f"""{HEAD}
import json, pathlib
class TritonPythonModel:
    def initialize(self, args):
        assert all(type(value) is str for value in args.values())
        pathlib.Path(__file__).with_name("args.json").write_text(json.dumps(args))
    def execute(self, requests):
        return []
    def finalize(self):
        pathlib.Path(__file__).with_name("finalized").touch()
"""


def test_initialize_gets_texts_that_say_what_and_where_and_finalize_is_the_end(tmp_path: Path) -> None:
    config = {"max_batch_size": 8, "parameters": {"weights": {"string_value": "$$TRITON_MODEL_DIRECTORY/w.npy"}}}
    spec = triton_model(tmp_path, INITIALIZES, config=config)
    with loaded(spec, Placement(device="gpu3", names=("m_gpu3_1",))):
        args = json.loads((spec.file.parent / "args.json").read_text())
        assert not (spec.file.parent / "finalized").exists()
    model_config = json.loads(args.pop("model_config"))
    assert (spec.file.parent / "finalized").exists()
    assert model_config["parameters"]["weights"]["string_value"] == f"{tmp_path}/m/w.npy"
    assert args == {
        "model_instance_kind": "GPU",
        "model_instance_name": "m_gpu3_1",
        "model_instance_device_id": "0",
        "model_repository": f"{tmp_path}/m",
        "model_version": "1",
        "model_name": "m",
    }


def test_execute_may_be_async(tmp_path: Path) -> None:
    code = IDENTITY.replace("def execute", "async def execute")
    with loaded(triton_model(tmp_path, code)) as executor:
        assert executor.run(payload(5), 1)["y"].tolist() == [[5, 5]]


def test_async_code_may_answer_by_a_task_that_goes_on_after_execute(tmp_path: Path) -> None:
    code = body("""
        import asyncio
        async def answer(sender, y):
            await asyncio.sleep(0)
            sender.send(y, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        pairs = [(request.get_response_sender(), respond(x)) for request, x in zip(requests, xs)]
        self.tasks = [asyncio.create_task(answer(*pair)) for pair in pairs]
    """).replace("    def execute", "    async def execute")
    with loaded(triton_model(tmp_path, code)) as executor:
        assert [told(answer) for answer in answers(executor, request(1), request(2))] == [[[1, 1]], [[2, 2]]]


def test_the_module_of_triton_is_there_only_while_the_model_is_loaded(tmp_path: Path) -> None:
    spec = triton_model(tmp_path, IDENTITY)
    (spec.file.parent / "triton_python_backend_utils.py").write_text("raise RuntimeError('a stub for editors')\n")
    with loaded(spec):
        assert "triton_python_backend_utils" in sys.modules
    assert "triton_python_backend_utils" not in sys.modules


LOAD_FAILURES = {
    "no class": ("TritonPythonModel = None\n", "model.py: found no class TritonPythonModel, expected a class Tri"),
    "no execute": ("class TritonPythonModel: pass\n", "found a TritonPythonModel without execute, expected"),
    "arguments": (
        "class TritonPythonModel:\n    def execute(self): pass\n",
        "found execute(), expected one argument beside self: execute(self, requests)",
    ),
    "initialize": (
        "class TritonPythonModel:\n    def initialize(self, args): open('/no/w')\n    def execute(self, r): pass\n",
        "FileNotFoundError: [Errno 2] No such file or directory: '/no/w' (at model.py:2)",
    ),
    "async initialize": (
        "class TritonPythonModel:\n    async def initialize(self, args): pass\n    def execute(self, r): pass\n",
        "found async def initialize, expected def initialize(self, args)",
    ),
    "unknown name": (
        "from triton_python_backend_utils import Tensors\n",
        "ImportError: cannot import name 'Tensors' from 'triton_python_backend_utils' (unknown location) (at",
    ),
    "missing package": ("import nothing_like_it\n", "ModuleNotFoundError: No module named 'nothing_like_it' (at mo"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "text"), LOAD_FAILURES.values(), ids=LOAD_FAILURES)
def test_code_that_cannot_be_loaded_is_refused(tmp_path: Path, code: str, text: str) -> None:
    failure = load_failure(triton_model(tmp_path, code))
    assert failure.startswith("model 'm' version 1: ")
    assert text in failure
    assert str(tmp_path) not in failure


def test_what_the_model_logs_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = body("""
        pb_utils.Logger.log_warn("100% odd")
        pb_utils.Logger.log("plain", pb_utils.Logger.ERROR)
        return [respond(x) for x in xs]
    """)
    with loaded(triton_model(tmp_path, code)) as executor, caplog.at_level(logging.INFO):
        executor.run(payload(1), 1)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "100% odd"),
        ("ERROR", "plain"),
    ]
