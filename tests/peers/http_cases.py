"""How HTTP requests are written down."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

Headers = Mapping[str, str]
LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it is sent.

    Attributes:
        chunk_bytes: Send the body in chunks of this size; 0: with a Content-Length.
        sent: All bytes of it, where the others cannot say them.
    """

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    chunk_bytes: int = 0
    sent: bytes = b""

    def __bytes__(self) -> bytes:
        if self.sent:
            return self.sent
        framing = "Transfer-Encoding: chunked" if self.chunk_bytes else f"Content-Length: {len(self.body)}"
        head = [f"{self.method} {self.path} HTTP/1.1", "Host: localhost", "Connection: close"]
        if self.body or self.method == "POST":
            head.append(framing)
        head += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*head, "", ""]).encode("latin-1") + (self._chunks() if self.chunk_bytes else self.body)

    def _chunks(self) -> bytes:
        starts = range(0, len(self.body), self.chunk_bytes)
        parts = [self.body[start : start + self.chunk_bytes] for start in starts]
        return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


Case = tuple[Request, ...]
"""What one test sends, in this order."""
Cases = dict[str, Case | Request]


def get(path: str, **headers: str) -> Request:
    """A GET."""
    return Request("GET", path, headers=tuple(headers.items()))


def post(path: str, body: object = b"", headers: Headers | None = None) -> Request:
    """A POST of bytes or a text as they are, or of anything else as JSON."""
    return Request("POST", path, in_bytes(body), tuple((headers or {}).items()))


def in_bytes(body: object) -> bytes:
    """A body; JSON of what is neither bytes nor a text."""
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def tensor(datatype: str = "FP32", shape: object = (1, 2), name: str = "x", **members: object) -> dict[str, object]:
    """An input of a request."""
    return {"name": name, "datatype": datatype, "shape": shape, **members}


ONE = tensor(data=[1, 2])


def body(*inputs: object, **members: object) -> dict[str, object]:
    """An infer request with these inputs."""
    return {**members, "inputs": inputs}


def infer(model: str, content: object, headers: Headers | None = None, *, version: str = "") -> Request:
    """An infer request whose body is JSON only, or bytes as they are."""
    in_version = f"/versions/{version}" if version else ""
    return post(f"/v2/models/{model}{in_version}/infer", content, headers)


def binary(model: str, content: object, blob: bytes, length: str = "", **headers: str) -> Request:
    """An infer request with binary tensors behind the JSON; `length` instead of the true one in the header."""
    head = in_bytes(content)
    return infer(model, head + blob, {LENGTH: length or str(len(head)), **headers})


def sized(size_bytes: object, datatype: str = "FP32", shape: object = (1, 2), name: str = "x") -> dict[str, object]:
    """An input whose data is behind the JSON."""
    return tensor(datatype, shape, name, parameters={"binary_data_size": size_bytes})


def steps_of(case: Case | Request) -> Case:
    """The requests of a case."""
    return (case,) if isinstance(case, Request) else case
