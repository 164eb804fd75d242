"""TorchServe handlers that compute with PyTorch, on the CPU."""

import asyncio
import base64
import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from backends.errors import PredictionError
from tests.backends.process.builders import remote_executors
from tests.backends.torchserve.builders import answers_of, archive, envelope, load_failure, run, run_failure
from tests.images.pictures import encoded, photo

torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")
transforms = pytest.importorskip("torchvision").transforms

pytestmark = pytest.mark.torch

NETWORK = """\
    import torch

    class Network(torch.nn.Module):
        '''Eight classes: a linear map of the mean colour.'''

        def __init__(self):
            super().__init__()
            self.scores = torch.nn.Linear(3, 8)

        def forward(self, pictures):
            return self.scores(pictures.mean(dim=(2, 3)))
    """
NAMES = {str(index): f"class {index}" for index in range(8)}
PHOTO = encoded(photo(320, 280), "JPEG")
HANDLER = """\
    import io

    import torch
    from PIL import Image
    from torchvision import transforms

    from model import Network


    class ColourHandler:
        def __init__(self):
            self.initialized = False

        def initialize(self, context):
            properties = context.system_properties
            self.device = torch.device(
                f"cuda:{properties.get('gpu_id')}"
                if torch.cuda.is_available() and properties.get("gpu_id") is not None
                else "cpu"
            )
            self.model = Network()
            weights = properties.get("model_dir") + "/" + context.manifest["model"]["serializedFile"]
            self.model.load_state_dict(torch.load(weights, map_location=self.device, weights_only=True))
            self.model.to(self.device).eval()
            self.transform = transforms.Compose([
                transforms.Resize(256),
                transforms.CenterCrop(224),
                transforms.ToTensor(),
                transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ])
            self.initialized = True

        def preprocess(self, data):
            images = []
            for row in data:
                image = row.get("data") or row.get("body")
                images.append(self.transform(Image.open(io.BytesIO(image)).convert("RGB")))
            return torch.stack(images).to(self.device)

        def inference(self, batch):
            with torch.no_grad():
                return torch.nn.functional.softmax(self.model(batch), dim=1)

        def postprocess(self, probabilities):
            confidence, index = probabilities.max(dim=1)
            return [{"class": i, "confidence": c} for i, c in zip(index.tolist(), confidence.tolist())]

        def handle(self, data, context):
            return self.postprocess(self.inference(self.preprocess(data)))
    """


class Network(torch.nn.Module):
    """The same as in the archive."""

    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(3, 8)

    def forward(self, pictures):
        return self.scores(pictures.mean(dim=(2, 3)))


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    made = Network()
    with torch.no_grad():
        made.scores.weight.mul_(4)
    return made.eval()


def probabilities(image: Image.Image) -> list[float]:
    """What PyTorch itself answers to a picture."""
    prepare = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    with torch.no_grad():
        return torch.softmax(network()(prepare(image)[None]), dim=1)[0].tolist()


def state() -> bytes:
    stream = io.BytesIO()
    torch.save(network().state_dict(), stream)
    return stream.getvalue()


def script() -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(network(), torch.zeros(1, 3, 8, 8)), stream)
    return stream.getvalue()


EAGER = {
    "files": {"network.py": NETWORK, "weights.pth": state(), "index_to_name.json": json.dumps(NAMES)},
    "manifest": {"modelFile": "network.py", "serializedFile": "weights.pth"},
}
SCRIPT = {
    "files": {"weights.pt": script(), "index_to_name.json": json.dumps(NAMES)},
    "manifest": {"serializedFile": "weights.pt"},
}


def expected(image: Image.Image) -> dict[str, float]:
    scores = probabilities(image)
    best = sorted(range(8), key=lambda index: -scores[index])[:5]
    return {f"class {index}": pytest.approx(scores[index], abs=1e-5) for index in best}


async def in_a_worker(spec, *rows: bytes) -> list[object]:
    async with remote_executors(spec) as (executor,):
        await asyncio.to_thread(executor.load)
        return await asyncio.to_thread(run, executor, *rows)


@pytest.mark.parametrize("parts", [EAGER, SCRIPT], ids=["eager", "TorchScript"])
def test_the_built_in_classifier_answers_the_five_most_probable_classes(tmp_path: Path, parts) -> None:
    answers = answers_of(archive(tmp_path, handler="image_classifier", **parts), PHOTO, PHOTO)

    found = json.loads(answers[1])
    wanted = expected(Image.open(io.BytesIO(PHOTO)))
    assert found == wanted
    assert list(found) == list(wanted)
    assert answers[0] == answers[1]


async def test_a_handler_with_device_choice_and_transforms_answers_class_and_confidence(tmp_path: Path) -> None:
    files = {"model.py": NETWORK, "weights.pth": state()}
    spec = archive(tmp_path, HANDLER, files=files, manifest={"serializedFile": "weights.pth"})
    other = encoded(photo(300, 400, seed=2), "PNG")

    by_body, by_field = await in_a_worker(spec, PHOTO, envelope(data=(other, "image/png")))

    scores = probabilities(Image.open(io.BytesIO(PHOTO)))
    best = int(np.argmax(scores))
    assert json.loads(by_body) == {"class": best, "confidence": pytest.approx(scores[best], abs=1e-5)}
    assert b'"confidence"' in by_field


async def test_an_archive_may_bring_its_network_in_a_package_named_models(tmp_path: Path) -> None:
    code = """\
        from torch import no_grad
        from ts.torch_handler.vision_handler import VisionHandler
        from torchvision import transforms
        from models.colour import Network

        class Handler(VisionHandler):
            image_processing = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])
            def _load_torchscript_model(self, path):
                return Network()
            def postprocess(self, data):
                return [len(row) for row in data.tolist()]
        """
    files = {"models/__init__.py": "", "models/colour.py": NETWORK, "weights.pt": b"read by nobody"}
    spec = archive(tmp_path, code, files=files, manifest={"serializedFile": "weights.pt"})

    answers = await in_a_worker(spec, PHOTO)

    assert answers == [b"8"]


async def test_a_model_file_may_be_named_models(tmp_path: Path) -> None:
    files = {**EAGER["files"], "models.py": NETWORK}
    manifest = {"modelFile": "models.py", "serializedFile": "weights.pth"}

    answers = await in_a_worker(archive(tmp_path, handler="image_classifier", files=files, manifest=manifest), PHOTO)

    assert json.loads(answers[0]) == expected(Image.open(io.BytesIO(PHOTO)))


def test_a_picture_may_come_as_bytes_base64_or_numbers(tmp_path: Path) -> None:
    tensor = transforms.ToTensor()(photo(8, 8))
    code = """\
        from ts.torch_handler.vision_handler import VisionHandler
        from torchvision import transforms
        class Handler(VisionHandler):
            image_processing = transforms.ToTensor()
            def postprocess(self, data):
                return [row.argmax().item() for row in data]
        """
    rows = (
        encoded(photo(8, 8)),
        envelope(data=(base64.b64encode(encoded(photo(8, 8))), "text/plain")),
        envelope(body=(json.dumps(tensor.tolist()).encode(), "application/json")),
    )
    spec = archive(tmp_path, code, **SCRIPT)

    plain, as_text, as_numbers = answers_of(spec, *rows)

    assert plain.isdigit()
    assert as_text.endswith(plain)
    assert as_numbers.endswith(plain)


HALF = photo(64, 64)
HALF.putalpha(photo(64, 64, seed=3).convert("L"))
KINDS = {
    "grey": photo(64, 64).convert("L"),
    "transparent": HALF,
    "palette": photo(64, 64).convert("P"),
    "sixteen bits": Image.fromarray((np.asarray(photo(64, 64).convert("L")).astype(np.uint16) << 8) + 7),
}


@pytest.mark.parametrize("picture", KINDS.values(), ids=KINDS)
def test_pictures_of_every_kind_are_classified_like_their_rgb_twins(tmp_path: Path, picture: Image.Image) -> None:
    match picture.mode:
        case "RGBA":
            twin = Image.new("RGB", picture.size, "white")
            twin.paste(picture, mask=picture)
        case "I;16":
            twin = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8)).convert("RGB")
        case _:
            twin = picture.convert("RGB")

    answers = answers_of(archive(tmp_path, handler="image_classifier", **SCRIPT), encoded(picture))

    assert json.loads(answers[0]) == expected(twin)


DIGITS = """\
    from ts.torch_handler.image_classifier import ImageClassifier
    from torchvision import transforms
    class DigitHandler(ImageClassifier):
        image_processing = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.13,), (0.31,))])
        def inference(self, data):
            return data.shape[1:]
        def postprocess(self, shape):
            return [list(shape)]
    """


def test_a_handler_with_a_geometry_of_its_own_gets_the_picture_as_it_is_stored(tmp_path: Path) -> None:
    answers = answers_of(archive(tmp_path, DIGITS, **SCRIPT), encoded(photo(28, 28).convert("L")))

    assert json.loads(answers[0]) == [1, 28, 28]


def test_what_is_no_picture_is_refused_for_such_a_handler_as_well(tmp_path: Path) -> None:
    error = run_failure(archive(tmp_path, DIGITS, **SCRIPT), b"no picture at all", kind=PredictionError)

    assert (vars(error), str(error)) == ({"status": 415}, "found bytes of no known format, expected a picture")


@pytest.mark.parametrize(
    ("row", "status", "says"),
    [
        (b"no picture at all", 415, "accepted: JPEG"),
        (PHOTO[:1000], 422, "found a damaged picture"),
        (envelope(other=PHOTO), 400, "found no field data or body with content in a request, expected a picture"),
        (envelope(data=(b"!", "text/plain")), 400, "no base64"),
    ],
    ids=["text", "damaged", "no field", "base64"],
)
def test_what_is_no_picture_is_refused_with_a_status(tmp_path: Path, row: bytes, status: int, says: str) -> None:
    error = run_failure(archive(tmp_path, handler="image_classifier", **SCRIPT), row, kind=PredictionError)

    assert isinstance(error, PredictionError)
    assert error.status == status
    assert says in str(error)


def test_a_tensor_is_no_answer(tmp_path: Path) -> None:
    code = "import torch\ndef handle(data, context):\n    return data and [torch.zeros(2)]\n"

    error = run_failure(archive(tmp_path, code), b"")

    assert str(error) == "the handler answered with a torch.Tensor, expected bytes, str or JSON: use .tolist()"


def pickled() -> bytes:
    stream = io.BytesIO()
    torch.save(Path("weights"), stream)
    return stream.getvalue()


REFUSALS = {
    "pickle": (
        {**EAGER, "files": {"pickled_network.py": NETWORK, "weights.pth": pickled()},
         "manifest": {"modelFile": "pickled_network.py", "serializedFile": "weights.pth"}},
        "weights.pth: found more than tensors in it, expected a state dict: torch.save(model.state_dict()",
    ),
    "two classes": (
        {"files": {"two_networks.py": "import torch\nclass A(torch.nn.Module): ...\nclass B(torch.nn.Module): ...\n"},
         "manifest": {"modelFile": "two_networks.py"}},
        "two_networks.py: found the model classes A, B, expected exactly one",
    ),
    "another format": (
        {"manifest": {"serializedFile": "weights.onnx"}},
        "serializedFile is 'weights.onnx', expected TorchScript in a .pt file, or a state dict",
    ),
    "nothing": ({}, "the manifest names neither a serializedFile nor a modelFile, expected a model to load"),
    "compiled ahead": (
        {**SCRIPT, "config": "pt2:\n  export:\n    aot_compile: true\n"},
        "expected the name of a backend of torch.compile, or its options",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "says"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_loaded_is_refused_with_a_sentence(tmp_path: Path, parts, says: str) -> None:
    text = load_failure(archive(tmp_path, handler="image_classifier", **parts))

    assert says in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("config", ["pt2: eager", "pt2:\n  compile:\n    enable: true\n    backend: eager\n"])
def test_a_model_is_compiled_where_the_configuration_says_so(tmp_path: Path, config: str) -> None:
    spec = archive(tmp_path, handler="image_classifier", config=config, **EAGER)

    answers = answers_of(spec, PHOTO)

    assert json.loads(answers[0]) == expected(Image.open(io.BytesIO(PHOTO)))
