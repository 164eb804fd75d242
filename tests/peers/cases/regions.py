"""System shared memory that is there: a segment of one page, which the tests make."""

import os
import struct

from tests.peers.http_cases import ONE, Case, Cases, Request, body, get, infer, post, tensor

KEY = f"/shoal_peers_{os.getpid()}"
SIZE_BYTES = 4096
TWO = struct.pack("<2f", 1, 2)
ROOT = "/v2/systemsharedmemory"
LEAVE = post(f"{ROOT}/unregister")


def register(name: str = "r", **fields: object) -> Request:
    """A registration of the segment."""
    return post(f"{ROOT}/region/{name}/register", {"key": KEY, "byte_size": SIZE_BYTES, **fields})


def used(*requests: Request, **fields: object) -> Case:
    """A region that is registered, used and unregistered."""
    return (register(**fields), *requests, LEAVE)


def place(size_bytes: object = 8, offset: object = 0, region: str = "r") -> dict[str, object]:
    """Parameters that name a place in a region."""
    return {"shared_memory_region": region, "shared_memory_byte_size": size_bytes, "shared_memory_offset": offset}


def read(**where: object) -> Request:
    """An input in a region."""
    return infer("echo_fp32", body(tensor(parameters=place(**where))))


def written(**where: object) -> Request:
    """An output in a region."""
    return infer("echo_fp32", body(ONE, outputs=[{"name": "y", "parameters": place(**where)}]))


CASES: Cases = {
    "a region and its status": used(get(f"{ROOT}/status"), get(f"{ROOT}/region/r/status")),
    "a name twice": used(register()),
    "a second name": used(register("s")),
    "a region that leaves by its name": used(post(f"{ROOT}/region/r/unregister"), get(f"{ROOT}/status")),
    "a region that is too large": (register(byte_size=SIZE_BYTES + 1), LEAVE),
    "a region that begins behind its end": (register(offset=SIZE_BYTES), LEAVE),
    "a region of no bytes": (register(byte_size=0), LEAVE),
    "a key without a slash": used(get(f"{ROOT}/status"), key=KEY[1:]),
    "an input": used(read()),
    "an input behind the first": used(read(offset=8)),
    "an input at the end": used(read(offset=SIZE_BYTES - 8)),
    "an input beyond the end": used(read(offset=SIZE_BYTES - 7)),
    "an input at an offset beyond": used(read(offset=SIZE_BYTES + 1)),
    "an input of a wrong size": used(read(size_bytes=4)),
    "an input of a negative size": used(read(size_bytes=-8)),
    "an input at a text": used(read(offset="0")),
    "an input of another region": used(read(region="s")),
    "an output": used(written()),
    "an output, and what is read there": used(written(offset=16), read(offset=16)),
    "an output of more bytes": used(written(size_bytes=64)),
    "an output of too few bytes": used(written(size_bytes=4)),
    "an output beyond the end": used(written(offset=SIZE_BYTES - 7)),
    "an output of another region": used(written(region="s")),
}  # fmt: skip
