"""Handlers without PyTorch: which code is called, with which context, and what is refused."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from backends.ports import Placement
from models.handler_rows import decode_response
from tests.backends.torchserve.builders import answers_of, archive, envelope, load_failure, loaded, run

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


@pytest.mark.parametrize(("written", "there"), [("conf/my.yaml", "conf/my.yaml"), ("/elsewhere/my.yaml", "my.yaml")])
def test_the_context_names_the_files_as_they_are_in_the_archive(tmp_path: Path, written: str, there: str) -> None:
    code = """\
        def handle(data, context):
            described = context.manifest["model"]
            return data and [f"{described['configFile']} {described['modelFile']} {context.model_yaml_config}"]
        """
    spec = archive(
        tmp_path,
        code,
        files={there: "threshold: 0.5", "net.py": ""},
        manifest={"configFile": written, "modelFile": "src/net.py"},
    )

    (answer,) = answers_of(spec, envelope(b""))

    assert isinstance(answer, bytes)
    assert decode_response(answer).body == f"{there} net.py {{'threshold': 0.5}}".encode()


def test_a_handler_on_a_gpu_is_told_the_number_of_the_only_one_that_it_sees(tmp_path: Path) -> None:
    code = "def handle(data, context):\n    return data and [str(context.system_properties['gpu_id'])]\n"

    with loaded(archive(tmp_path, code), Placement(device="gpu3")) as executor:
        answers = run(executor, b"")

    assert answers == [b"0"]


REFUSALS = {
    "no file": ({"handler": "gone.py"}, "MANIFEST.json: found the handler 'gone.py', expected a file gone.py"),
    "syntax": ({"code": "def handle(:"}, "SyntaxError: invalid syntax (at handler.py:1)"),
    "nothing": (
        {"code": "x = 1"},
        "handler.py: found no handler, expected a function handle(data, context), or one class",
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
