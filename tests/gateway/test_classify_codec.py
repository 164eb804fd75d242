"""Bodies of POST /classify, both ways."""

import base64
import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.core.errors import DeadlineExceededError, QueueFullError
from gateway.classify_codec import (
    MAX_TOP_K,
    ClassifyBody,
    parse_body,
    parse_top_k,
    render_response,
    server_timing,
)
from gateway.errors import CLASSIFY_ERRORS, explain
from models.errors import BrokenImageError, InvalidRequestError, MalformedRequestError, UnsupportedImageError
from models.inference import ClassifyResponse, Prediction, Timing

JSON = b"application/json"
MANY = 64  # images in one request
FORM = b"multipart/form-data; boundary=b"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def part(name: str, content: bytes) -> bytes:
    return b'--b\r\ncontent-disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), content)


@pytest.mark.parametrize("content_type", [b"image/jpeg", b"", b"application/octet-stream", b"text/html"])
def test_anything_but_json_and_forms_is_one_image(content_type: bytes) -> None:
    assert parse_body(b"\xff\xd8", content_type, MANY) == ClassifyBody((b"\xff\xd8",))


def test_a_form_may_hold_several_images_and_a_top_k() -> None:
    body = part("image", b"1") + part("top_k", b"3") + part("other", b"2") + b"--b--\r\n"

    assert parse_body(body, FORM, MANY) == ClassifyBody((b"1", b"2"), 3)


@given(images=st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=5), top_k=st.integers(1, MAX_TOP_K))
def test_json_may_hold_base64_and_data_urls(images: list[bytes], top_k: int) -> None:
    texts = [encoded(image) if len(image) % 2 else f"data:image/png;base64,{encoded(image)}" for image in images]

    body = parse_body(orjson.dumps({"images": texts, "top_k": top_k}), b"Application/JSON; charset=utf-8", MANY)

    assert body == ClassifyBody(tuple(images), top_k)


def test_base64_may_be_broken_into_lines() -> None:
    text = base64.encodebytes(bytes(100)).decode()

    assert parse_body(orjson.dumps({"images": [text]}), JSON, MANY).images == (bytes(100),)


BAD_IMAGES = {
    "not base64": ("###", "not valid base64"),
    "half of base64": ("abc", "not valid base64"),
    "not ASCII": ("é", "not valid base64"),
    "a number": (7, "found a number, expected a base64 string"),
    "null": (None, "found null"),
    "a list": ([], "found a list"),
    "a data URL without data": ("data:image/png;base64", "a data URL must be 'data:TYPE;base64,...'"),
    "a data URL in percent coding": ("data:image/png,%ff", "a data URL must be 'data:TYPE;base64,...'"),
}


@pytest.mark.parametrize("what", BAD_IMAGES)
def test_a_bad_image_in_json_is_an_error_at_its_place(what: str) -> None:
    image, text = BAD_IMAGES[what]

    first, second = parse_body(orjson.dumps({"images": [encoded(b"ok"), image]}), JSON, MANY).images

    assert first == b"ok"
    assert isinstance(second, BrokenImageError)
    assert text in str(second)
    assert "/images/1" in str(second)


REFUSED = {
    "no JSON": (JSON, b"{", "failed to parse the request JSON"),
    "a list": (JSON, b"[]", "the body is a list, expected an object"),
    "an unknown member": (JSON, b'{"images":["eA=="],"topk":1}', "unknown member 'topk'"),
    "no images": (JSON, b"{}", "images: found nothing"),
    "an empty list": (JSON, b'{"images":[]}', "images: found an empty list"),
    "images is a string": (JSON, b'{"images":"eA=="}', "images: found a string"),
    "top_k is true": (JSON, b'{"images":["eA=="],"top_k":true}', "top_k: found True"),
    "top_k is a string": (
        JSON,
        b'{"images":["eA=="],"top_k":"5"}',
        "top_k: found a string, expected a number from 1 to 1000",
    ),
    "top_k is null": (JSON, b'{"images":["eA=="],"top_k":null}', "top_k: found null"),
    "top_k is 0": (JSON, b'{"images":["eA=="],"top_k":0}', "top_k: found 0"),
    "top_k of a form": (FORM, part("image", b"1") + part("top_k", b"0") + b"--b--\r\n", "top_k: found 0"),
    "a form of fields": (FORM, part("top_k", b"1") + b"--b--\r\n", "the form has no image"),
    "an empty body": (b"image/png", b"", "found 0 bytes"),
    "an empty part": (FORM, part("image", b"") + b"--b--\r\n", "found 0 bytes"),
    "empty strings": (JSON, b'{"images":["",""]}', "found 0 bytes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_body_without_sense_is_refused_with_what_was_found(what: str) -> None:
    content_type, body, text = REFUSED[what]

    with pytest.raises(InvalidRequestError) as caught:
        parse_body(body, content_type, MANY)

    assert text in str(caught.value)


@given(body=st.binary(max_size=200), content_type=st.sampled_from([JSON, FORM, b"image/png"]))
def test_no_bytes_make_it_fail_otherwise(body: bytes, content_type: bytes) -> None:
    parsed = None
    with contextlib.suppress(InvalidRequestError):
        parsed = parse_body(body, content_type, MANY)

    assert parsed is None or parsed.images


@pytest.mark.parametrize("text", ["", "0", "1001", "-1", "1.0", "٣", "1" * 5000])
def test_a_top_k_that_is_no_number_in_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="expected a number from 1 to 1000"):
        parse_top_k(text)


def test_a_top_k_in_range_is_read() -> None:
    assert [parse_top_k(text) for text in ("1", "1000", "007")] == [1, 1000, 7]


CAT = (Prediction(index=3, label="cat", probability=0.5),)
CAT_JSON = [{"class": 3, "label": "cat", "probability": 0.5}]
BROKEN = BrokenImageError("damaged")


def answer(*results, **more) -> tuple[int, dict]:
    response = ClassifyResponse(model="m", version=2, results=results, **more)
    status, content = render_response(response)
    return status, orjson.loads(content)


def test_one_image_answers_a_list_and_several_a_list_of_lists() -> None:
    timing = Timing(decode_ns=1_500_000, queue_ns=2_000, compute_ns=3_000_000, total_ns=5_000_000)

    _, one = answer(CAT, timing=timing, request_id="7")
    _, two = answer(CAT, CAT)

    assert one == {
        "model": "m",
        "version": "2",
        "id": "7",
        "predictions": CAT_JSON,
        "timing_ms": {"decode": 1.5, "queue": 0.002, "compute": 3.0, "total": 5.0},
    }
    assert two["predictions"] == [CAT_JSON, CAT_JSON]


def test_one_bad_image_of_several_is_200_with_the_error_at_its_place() -> None:
    status, document = answer(CAT, BROKEN)

    assert (status, document["predictions"]) == (200, [CAT_JSON, {"error": "damaged"}])


@pytest.mark.parametrize(
    ("results", "expected_status", "text"),
    [
        ((BROKEN,), 422, "damaged"),
        ((UnsupportedImageError("found: PDF"),), 415, "found: PDF"),
        ((QueueFullError(limit=1, unit="requests"),), 429, "Exceeds maximum queue size (1 requests)"),
        ((DeadlineExceededError(),), 504, "Request timeout expired"),
        ((BROKEN, BROKEN), 422, "none of the images could be classified"),
        ((BROKEN, UnsupportedImageError("found: PDF")), 422, "none of the images could be classified"),
        ((UnsupportedImageError("a"), UnsupportedImageError("b")), 415, "none of the images could be classified"),
    ],
)
def test_only_bad_images_give_the_status_of_their_error(results: tuple, expected_status: int, text: str) -> None:
    status, document = answer(*results)

    assert (status, document["error"]) == (expected_status, text)
    assert len(document.get("predictions", [])) == (len(results) if len(results) > 1 else 0)


def test_a_defect_of_the_program_is_not_shown() -> None:
    assert explain(CLASSIFY_ERRORS, ZeroDivisionError("secret"))[1] == "internal error"
    assert explain(CLASSIFY_ERRORS, MalformedRequestError("found x"))[1] == "found x"


def test_the_server_timing_header_lists_the_stages() -> None:
    timing = Timing(decode_ns=1_500_000, queue_ns=0, compute_ns=3_000_000, total_ns=5_000_000)

    assert server_timing(timing) == "decode;dur=1.5, queue;dur=0.0, compute;dur=3.0, total;dur=5.0"


@pytest.mark.parametrize("url", ["http://example.org/a.jpg", "HTTPS://example.org/a.jpg"])
def test_a_url_is_told_that_it_is_not_fetched(url: str) -> None:
    (image,) = parse_body(orjson.dumps({"images": [url]}), JSON, MANY).images

    assert isinstance(image, BrokenImageError)
    assert "URLs are not fetched (at /images/0)" in str(image)
