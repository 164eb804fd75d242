"""`generate` and `generate_stream`."""

from tests.peers.http_cases import Cases, Request, post


def generate(model: str, content: object, *, stream: bool = False) -> Request:
    """A request of one of both."""
    return post(f"/v2/models/{model}/{'generate_stream' if stream else 'generate'}", content)


BODIES: dict[str, tuple[str, object]] = {
    "a list": ("single", {"x": [1, 2]}),
    "a number": ("single", {"x": 1.5}),
    "nothing": ("single", {}),
    "no JSON": ("single", "{"),
    "a JSON list": ("single", "[1]"),
    "an empty body": ("single", ""),
    "a list of lists": ("single", {"x": [[1, 2]]}),
    "an empty list": ("single", {"x": []}),
    "a string for numbers": ("single", {"x": "a"}),
    "null": ("single", {"x": None}),
    "an object": ("single", {"x": {"a": 1}}),
    "an id": ("single", {"x": 1, "id": "17"}),
    "a text": ("echo_string", {"x": "é\n"}),
    "texts": ("echo_string", {"x": ["a", "b"]}),
    "a boolean": ("echo_bool", {"x": True}),
    "a fixed shape": ("fixed", {"x": [1, 2, 3, 4]}),
    "a wrong fixed shape": ("fixed", {"x": [1, 2]}),
    "an unknown model": ("nothing", {"x": 1}),
    "parameters": ("shows", {"x": 1, "a": 1, "b": "s", "parameters": {"c": 2}}),
    "a model that raises": ("fails", {"x": [1]}),
    "a model that refuses": ("refuses", {"x": [3]}),
    "an input twice": ("single", '{"x":1,"x":2}'),
    "two inputs": ("pair", {"x0": [1, 2], "x1": [3, 4]}),
    "one of two inputs": ("pair", {"x0": [1, 2]}),
}

CASES: Cases = {
    **{f"generate: {what}": generate(*parts) for what, parts in BODIES.items()},
    **{f"generate_stream: {what}": generate(*parts, stream=True) for what, parts in BODIES.items()},
    "generate of a version": post("/v2/models/versions/versions/1/generate", {"x": [1]}),
    "generate of an unknown version": post("/v2/models/versions/versions/7/generate", {"x": [1]}),
}
