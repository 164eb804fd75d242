"""Handlers without PyTorch: which code is called with what, what may come back, and how failures are told."""

import json
import logging
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from backends.errors import ExecutionError, OutOfMemoryError, PredictionError, WrongRowsError
from backends.ports import Placement
from models.handler_rows import HandlerResponse, decode_response
from tests.backends.torchserve.builders import (
    answers_of,
    archive,
    envelope,
    load_failure,
    loaded,
    run,
    run_failure,
)

FORMS = {
    "function": (
        "handler.py",
        """\
        def handle(data, context):
            return None if data is None else [bytes(row["body"]).upper() for row in data]
        """,
    ),
    "named function": (
        "handler.py:shout",
        """\
        def shout(data, context):
            return None if data is None else [bytes(row["body"]).upper() for row in data]
        """,
    ),
    "function around an object": (
        "handler.py",
        """\
        class Service:
            initialized = False
            def initialize(self, context):
                self.initialized = True
            def handle(self, data):
                return [bytes(row["body"]).upper() for row in data]

        _service = Service()

        def handle(data, context):
            if not _service.initialized:
                _service.initialize(context)
            return None if data is None else _service.handle(data)
        """,
    ),
    "class": (
        "handler.py",
        """\
        class Helper:
            pass

        class Handler:
            def initialize(self, context):
                self.initialized = True
            def handle(self, data, context):
                assert self.initialized
                return [bytes(row["body"]).upper() for row in data]
        """,
    ),
    "class below BaseHandler": (
        "handler.py",
        """\
        from ts.torch_handler.base_handler import BaseHandler

        class Handler(BaseHandler):
            def initialize(self, context):
                self.initialized = True
            def preprocess(self, data):
                return [bytes(row["body"]) for row in data]
            def inference(self, data):
                return [each.upper() for each in data]
            def postprocess(self, data):
                return data
        """,
    ),
    "class below a class of the same file": (
        "handler.py",
        """\
        from ts.torch_handler.base_handler import BaseHandler

        class Common(BaseHandler):
            def initialize(self, context):
                self.initialized = True

        class Handler(Common):
            def handle(self, data, context):
                return [bytes(row["body"]).upper() for row in data]
        """,
    ),
}


@pytest.mark.parametrize(("handler", "code"), FORMS.values(), ids=FORMS)
def test_a_handler_is_a_function_or_a_class(tmp_path: Path, handler: str, code: str) -> None:
    answers = answers_of(archive(tmp_path, code, handler=handler), b"one", b"two")

    assert answers == [b"ONE", b"TWO"]


CONTEXT = """\
    import json, os

    def handle(data, context):
        if data is None:
            return
        told = {
            "properties": context.system_properties, "manifest": context.manifest, "config": context.model_yaml_config,
            "name": context.model_name, "ids": [context.get_request_id(index) for index in range(len(data))],
        }
        told["properties"]["model_dir"] = sorted(os.listdir(told["properties"]["model_dir"]))
        told["here"] = sorted(os.listdir("."))
        return [told] * len(data)
    """


def test_the_context_says_what_the_model_is_and_where_it_runs(tmp_path: Path) -> None:
    spec = archive(tmp_path, CONTEXT, config="batchSize: 8\nhandler:\n  threshold: 0.5\n")

    answers = answers_of(spec, envelope(request_id="first"), envelope(request_id="second"))

    told = json.loads(decode_response(answers[1]).body)
    files = ["MAR-INF", "handler.py", "model-config.yaml"]
    assert told["properties"] == {
        "model_dir": files,
        "gpu_id": None,
        "batch_size": 8,
        "server_name": "MMS",
        "server_version": "0.12.0",
        "limit_max_image_pixels": True,
    }
    assert told["manifest"]["model"]["modelVersion"] == "1.0"
    assert told["config"] == {"batchSize": 8, "handler": {"threshold": 0.5}}
    assert (told["name"], told["ids"], told["here"]) == ("m", ["first", "second"], files)


def test_a_handler_on_a_gpu_is_told_the_number_of_the_only_one_that_it_sees(tmp_path: Path) -> None:
    code = "def handle(data, context):\n    return data and [str(context.system_properties['gpu_id'])]\n"

    with loaded(archive(tmp_path, code), Placement(device="gpu3")) as executor:
        answers = run(executor, b"")

    assert answers == [b"0"]


KINDS = """\
    def handle(data, context):
        return data and [
            {name: [type(value).__name__, value if isinstance(value, (dict, str)) else value.decode("latin-1")]
             for name, value in row.items()} for row in data
        ]
    """


@pytest.mark.parametrize(
    ("value", "kind", "given"),
    [
        (b'{"a": 1}', "application/json", ["dict", {"a": 1}]),
        (b'{"a": 1}', "application/json; charset=utf-8", ["dict", {"a": 1}]),
        (b'{"a": 1}', "Application/JSON", ["bytearray", '{"a": 1}']),
        (b"{", "application/json", ["bytearray", "{"]),
        (b"hello", "text/plain", ["str", "hello"]),
        (b"\xff", "text/plain", ["bytearray", "\xff"]),
        (b"\xff", "image/png", ["bytearray", "\xff"]),
    ],
)
def test_a_value_is_decoded_by_its_content_type(tmp_path: Path, value: bytes, kind: str, given: list[object]) -> None:
    answers = answers_of(archive(tmp_path, KINDS), envelope(data=(value, kind)))

    assert json.loads(decode_response(answers[0]).body) == {"data": given}


def test_nothing_is_decoded_where_the_server_was_told_so(tmp_path: Path) -> None:
    spec = archive(tmp_path, KINDS, decode_input_request="false")

    answers = answers_of(spec, envelope(data=(b"hello", "text/plain")))

    assert json.loads(decode_response(answers[0]).body) == {"data": ["bytearray", "hello"]}


def test_json_that_is_none_reaches_the_handler_as_bytes_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = envelope(data=(b"{", "application/json"))

    answers_of(archive(tmp_path, KINDS), row, row)

    assert caplog.text.count("a value of type application/json cannot be decoded") == 1


HEADERS = """\
    def handle(data, context):
        if data is None:
            return
        for index in range(len(data)):
            context.set_response_content_type(index, "text/colour")
            context.set_response_header(index, "x-colour", context.get_request_header(index, "X-Wish") or "none")
            context.set_response_status(201, "Painted", index)
        return [str(context.get_all_request_header(0))] + ["plain"] * (len(data) - 1)
    """


def test_headers_and_status_go_to_and_fro_in_an_envelope_and_a_plain_row_gets_the_body_alone(tmp_path: Path) -> None:
    wrapped, plain = answers_of(archive(tmp_path, HEADERS), envelope({"X-Wish": "red"}, data=(b"", "image/png")), b"")

    body = b"{'data': {'content-type': 'image/png'}, 'X-Wish': 'red'}"
    headers = {"content-type": "text/colour", "x-colour": "red"}
    assert decode_response(wrapped) == HandlerResponse(body=body, status=201, reason="Painted", headers=headers)
    assert plain == b"plain"


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ("b'\\xff'", b"\xff"),
        ("bytearray(b'ab')", b"ab"),
        ("'h\\xe4'", "hä".encode()),
        ("{'class': 'cat'}", b'{\n  "class": "cat"\n}'),
        ("[1, 2]", b"[\n  1,\n  2\n]"),
        ("None", b"null"),
    ],
)
def test_an_answer_is_sent_as_it_is_or_as_json(tmp_path: Path, value: str, body: bytes) -> None:
    answers = answers_of(archive(tmp_path, f"def handle(data, context):\n    return [{value}]\n"), b"")

    assert answers == [body]


def test_an_answer_that_is_no_json_fails_its_own_request_only(tmp_path: Path) -> None:
    code = "def handle(data, context):\n    return data and [b'good', {1, 2}, b'good']\n"

    first, second, third = answers_of(archive(tmp_path, code), b"", b"", b"")

    assert (first, third) == (b"good", b"good")
    assert str(second) == (
        "the handler answered with set, expected bytes, str or JSON: Object of type set is not JSON serializable"
    )


def test_a_broken_envelope_fails_its_own_request_only(tmp_path: Path) -> None:
    code = "def handle(data, context):\n    return data and [str(len(data))] * len(data)\n"

    first, second, third = answers_of(archive(tmp_path, code), b"", envelope(data=b"x")[:-1], b"")

    assert (first, third) == (b"2", b"2")
    assert isinstance(second, PredictionError)
    assert (second.status, str(second)) == (400, "a handler's row has a field 'data' of 1 bytes, expected 0 to 0, "
                                                 "which are left")  # fmt: skip


def test_the_status_of_an_error_becomes_one_where_a_plain_answer_has_no_place_for_it(tmp_path: Path) -> None:
    code = """\
        def handle(data, context):
            if data is not None:
                context.set_response_status(422, "No", 1)
                return ["fine", "no picture"]
        """

    first, second = answers_of(archive(tmp_path, code), b"", b"")

    assert first == b"fine"
    assert isinstance(second, PredictionError)
    assert (second.status, str(second)) == (422, "no picture")


@pytest.mark.parametrize(
    ("returned", "says", "kind"),
    [
        ("None", "the handler returned None, expected a list with one answer for each request", ExecutionError),
        ("{'a': 1}", "the handler returned a value of type dict, expected a list", ExecutionError),
        ("[1]", "output 'response' has 1 rows for a batch of 2", WrongRowsError),
        ("[1, 2, 3]", "output 'response' has 3 rows for a batch of 2", WrongRowsError),
    ],
)
def test_a_return_value_that_is_not_one_answer_for_each_request_fails_the_batch(
    tmp_path: Path, returned: str, says: str, kind: type[ExecutionError]
) -> None:
    error = run_failure(archive(tmp_path, f"def handle(data, context):\n    return {returned}\n"), b"", b"", kind=kind)

    assert says in str(error)


@pytest.mark.parametrize(
    ("raised", "says", "kind"),
    [
        ("ValueError('no cat')", "ValueError: no cat (at handler.py:3)", ExecutionError),
        ("SystemExit(3)", "SystemExit: 3 (at handler.py:3)", ExecutionError),
        ("MemoryError('all gone')", "MemoryError: all gone (at handler.py:3)", OutOfMemoryError),
    ],
)
def test_an_error_of_the_handler_is_told_with_its_line(
    tmp_path: Path, raised: str, says: str, kind: type[ExecutionError]
) -> None:
    code = f"def handle(data, context):\n    if data is not None:\n        raise {raised}\n"

    error = run_failure(archive(tmp_path, code), b"", kind=kind)

    assert str(error) == says


@pytest.mark.parametrize(("code", "status"), [("413", 413), ("200", 500), ("'x'", 500)])
def test_a_prediction_exception_carries_its_status(tmp_path: Path, code: str, status: int) -> None:
    text = f"""\
        from ts.utils.util import PredictionException
        def handle(data, context):
            if data is not None:
                raise PredictionException("too dark", {code})
        """

    error = run_failure(archive(tmp_path, text), b"", kind=PredictionError)

    assert isinstance(error, PredictionError)
    assert (str(error), error.status) == ("too dark", status)


REFUSALS = {
    "no file": ({"handler": "gone.py"}, "MANIFEST.json: found the handler 'gone.py', expected a file gone.py"),
    "syntax": ({"code": "def handle(:"}, "SyntaxError: invalid syntax (at handler.py:1)"),
    "nothing": (
        {"code": "x = 1"},
        "handler.py: found no single handler: neither of them, expected a function handle(data, context), or one class",
    ),
    "two classes": (
        {"code": "class A:\n    def initialize(self, c): ...\n    def handle(self, d, c): ...\nclass B(dict):\n"
                 "    def initialize(self, c): ...\n    def handle(self, d, c): ...\n"},
        "found no single handler: the handler classes A, B, expected",
    ),
    "fails at load": (
        {"code": "def handle(data, context):\n    return len(data)\n"},
        "TypeError: object of type 'NoneType' has no len() (at handler.py:2)",
    ),
    "initialize fails": (
        {"code": "class A:\n    def handle(self, d, c): ...\n    def initialize(self, c):\n        open('weights')\n"},
        "FileNotFoundError: [Errno 2] No such file or directory: 'weights' (at handler.py:4)",
    ),
    "unknown module": (
        {"code": "from ts.torch_handler.object_detector import ObjectDetector"},
        "TorchServe's module 'ts.torch_handler.object_detector' is not among those that are here; install the package",
    ),
    "other built-in": (
        {"handler": "object_detector"},
        "found TorchServe's built-in handler 'object_detector', expected 'image_classifier', the only built-in one",
    ),
    "misspelt": ({"handler": "image_clasifier"}, "did you mean 'image_classifier'?"),
    "configuration": (
        {"code": "def handle(data, context): ...", "config": "a: [1\n"},
        "model-config.yaml: cannot be read: while parsing a flow sequence",
    ),
    "configuration of another form": (
        {"code": "def handle(data, context): ...", "config": "- a\n"},
        "model-config.yaml: found list, expected an object",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "says"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_no_handler_is_refused_with_a_sentence(tmp_path: Path, parts: dict[str, str], says: str) -> None:
    text = load_failure(archive(tmp_path, **parts))

    assert text.startswith("model 'm' version 1: ")
    assert says in text
    assert str(tmp_path) not in text


def test_loading_leaves_no_traces(tmp_path: Path) -> None:
    before = (Path.cwd(), list(sys.path), list(sys.meta_path))
    spec = archive(tmp_path, FORMS["class below BaseHandler"][1], requirements_dir=str(tmp_path / "packages"))

    answers_of(spec, b"x")
    load_failure(archive(tmp_path, "raise ValueError"))

    assert before == (Path.cwd(), list(sys.path), list(sys.meta_path))
    assert not [name for name in sys.modules if name in ("ts", "handler") or name.startswith("ts.")]
    assert find_spec("ts") is None


def test_the_packages_of_an_archive_come_after_its_own_files_and_before_the_servers(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "only_there.py").write_text("name = 'installed'")
    (packages / "in_both.py").write_text("name = 'installed'")
    code = """\
        import only_there, in_both
        def handle(data, context):
            return data and [only_there.name + " " + in_both.name]
        """
    spec = archive(tmp_path, code, files={"in_both.py": "name = 'own'"}, requirements_dir=str(packages))

    answers = answers_of(spec, b"")

    assert answers == [b"installed own"]


def test_a_package_named_ts_of_the_archive_wins(tmp_path: Path) -> None:
    code = """\
        from ts.colours import name
        def handle(data, context):
            return data and [name]
        """
    spec = archive(tmp_path, code, files={"ts/__init__.py": "", "ts/colours.py": "name = 'red'"})

    try:
        answers = answers_of(spec, b"")
    finally:
        sys.modules.pop("ts", None)
        sys.modules.pop("ts.colours", None)

    assert answers == [b"red"]


METRICS = """\
    from ts.metrics.dimension import Dimension
    from ts.metrics.metric_type_enum import MetricTypes

    kept = None

    def handle(data, context):
        global kept
        if data is None:
            kept = context.metrics.add_metric_to_cache("Kept", "count", ["Colour"])
            return
        context.metrics.add_counter("Pictures", len(data))
        context.metrics.add_time("Wait", 20, None, "ms")
        context.metrics.add_time("Wait", 40)
        context.metrics.add_size("Weight", 2.5, idx=0, unit="kB", dimensions=[Dimension("Kind", "big")])
        context.metrics.add_percent("Share", 50)
        context.metrics.add_metric("Depth", 3, "m", metric_type=MetricTypes.GAUGE)
        context.metrics.add_counter("Backwards", -1)
        kept.add_or_update(1, ["red"])
        return ["ok"] * len(data)
    """


def test_metrics_of_a_handler_are_summed_up_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        answers_of(archive(tmp_path, METRICS), b"", b"")

    (told,) = [record.getMessage() for record in caplog.records if "metrics of its handler" in record.getMessage()]
    assert "model 'm'" in told
    for part in (
        "Pictures 2;",
        "Wait 2 values, mean 30 ms, last 40 ms",
        "Weight[Kind:big] 1 values, mean 2.5 kB, last 2.5 kB",
        "Share 1 values, mean 50 percent",
        "Depth 1 values, mean 3 m",
        "Kept[Colour:red] 1;",
        "PredictionTime 1 values",
    ):
        assert part in told
    assert "metric 'Backwards' got the value -1" in caplog.text


def test_names_without_end_do_not_fill_the_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = """\
        def handle(data, context):
            if data is not None:
                for index in range(1_500):
                    context.metrics.add_counter(f"n{index}", 1)
                return [""]
        """

    answers_of(archive(tmp_path, code), b"")

    assert caplog.text.count("has made 1000 metrics") == 1


def test_streamed_answers_are_refused_with_a_sentence(tmp_path: Path) -> None:
    code = """\
        from ts.protocol.otf_message_handler import send_intermediate_predict_response
        def handle(data, context):
            if data is not None:
                send_intermediate_predict_response(["a"], context.request_ids, "Intermediate", 200, context)
        """

    error = run_failure(archive(tmp_path, code), b"")

    assert "answers of handlers are not streamed: return the whole answer (at handler.py:4)" in str(error)


def test_methods_are_timed_where_the_configuration_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = """\
        from ts.handler_utils.timer import timed
        from ts.torch_handler.base_handler import BaseHandler
        class Handler(BaseHandler):
            def initialize(self, context): ...
            @timed
            def preprocess(self, data): return data
            def inference(self, data): return data
            def postprocess(self, data): return ["x"] * len(data)
        """

    with caplog.at_level(logging.INFO):
        answers_of(archive(tmp_path, code, config="handler:\n  profile: true\n"), b"")

    assert "ts_handler_preprocess 1 values" in caplog.text
    assert "HandlerTime 1 values" in caplog.text
