"""Rows and answers of handlers: what they are given, what may come back, and how failures are told."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends.errors import ExecutionError, OutOfMemoryError, PredictionError, WrongRowsError
from models.handler_rows import HandlerResponse, decode_response
from tests.backends.torchserve.builders import answers_of, archive, envelope, run_failure

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


HALVES = {
    "answer": (
        "return ['good', 'a\\ud800']",
        "the handler answered with a str with the half character '\\ud800' at its p",
    ),
    "header": (
        "context.set_response_header(1, 'x', '\\ud800')\n    return ['good', 'bad']",
        "the handler has set a phrase or header that cannot be sent: str is not valid UTF-8",
    ),
}


@pytest.mark.parametrize(("statements", "says"), HALVES.values(), ids=HALVES)
def test_half_a_character_fails_its_own_request_only(tmp_path: Path, statements: str, says: str) -> None:
    code = f"def handle(data, context):\n    if data is None: return\n    {statements}\n"

    first, second = answers_of(archive(tmp_path, code), b"", envelope(data=b""))

    assert first == b"good"
    assert str(second).startswith(says)


ASKED_ALONE = """\
    from ts.torch_handler.base_handler import BaseHandler
    class Colours(BaseHandler):
        def initialize(self, context): ...
        def preprocess(self, data): return [row["body"].decode() for row in data]
        def inference(self, data): return data
        def postprocess(self, data): return [f"{len(data)} {colour}" for colour in data]
        def describe_handle(self): return "colours"
        def get_insights(self, prepared, inputs, target): return [f"because of {prepared}"]
    """


@pytest.mark.parametrize(("header", "body"), [("describe", b"colours"), ("explain", b"because of ['odd']")])
def test_a_row_that_is_answered_alone_takes_nothing_from_the_others(tmp_path: Path, header: str, body: bytes) -> None:
    odd = envelope({header: "True"}, body=(b"odd", "application/octet-stream"))

    first, second, third = answers_of(archive(tmp_path, ASKED_ALONE), odd, b"red", b"blue")

    assert decode_response(first).body == body
    assert (second, third) == (b"2 red", b"2 blue")


def test_a_row_that_is_answered_alone_fails_alone(tmp_path: Path) -> None:
    code = ASKED_ALONE.replace('return "colours"', "raise ValueError('none')")

    first, second = answers_of(archive(tmp_path, code), b"red", envelope({"describe": "True"}, body=b""))

    assert first == b"1 red"
    assert str(second) == "ValueError: none (at handler.py:7)"


def test_a_handler_may_run_the_event_loop_of_its_thread(tmp_path: Path) -> None:
    code = """\
        import asyncio
        def handle(data, context):
            return asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, data and ["done"]))
        """

    with ThreadPoolExecutor(1) as thread:
        (answer,) = thread.submit(answers_of, archive(tmp_path, code), b"x").result()

    assert answer == b"done"


NAMES = {
    "no UTF-8": (b'{"0": "caf\xe9"}', "index_to_name.json: found what is no JSON in UTF-8 ('utf-8' codec can't decode"),
    "no JSON": (b"{0: 1}", "index_to_name.json: found what is no JSON in UTF-8 (Expecting property name"),
    "a class too few": (b'{"0": "cat"}', "index_to_name.json has no name of class '1', expected one for each"),
}


@pytest.mark.parametrize(("content", "says"), NAMES.values(), ids=NAMES)
def test_names_of_classes_that_cannot_be_used_are_told_with_their_file(
    tmp_path: Path, content: bytes, says: str
) -> None:
    code = """\
        from ts.utils.util import load_label_mapping, map_class_to_label
        def handle(data, context):
            return data and map_class_to_label([[0.5, 0.5]], load_label_mapping("index_to_name.json"))
        """

    failure = run_failure(archive(tmp_path, code, files={"index_to_name.json": content}), b"")

    assert says in str(failure)


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


def test_streamed_answers_are_refused_with_a_sentence(tmp_path: Path) -> None:
    code = """\
        from ts.protocol.otf_message_handler import send_intermediate_predict_response
        def handle(data, context):
            if data is not None:
                send_intermediate_predict_response(["a"], context.request_ids, "Intermediate", 200, context)
        """

    error = run_failure(archive(tmp_path, code), b"")

    assert "answers of handlers are not streamed: return the whole answer (at handler.py:4)" in str(error)
