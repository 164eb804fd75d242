"""torchvision's image classifiers: what they are, what they answer, their files. The only module here with PyTorch."""

import difflib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torchvision import models

from backends.cpu_budget import available_cores
from backends.errors import ExportError
from backends.export.parity import Scores
from backends.torch_engine.threads import set_threads
from models.preprocessing import Preprocessing

_ROWS_AT_ONCE = 8
_OPSET = 17  # what ONNX Runtime and TensorRT of the last three years read
_WITH_AUXILIARY = frozenset({"googlenet", "inception_v3"})  # have outputs for their training only
_TRACED_ROWS = 2  # one row would let the tracer take the batch dimension for a constant


class TorchvisionClassifier:
    """A classifier of torchvision, on the CPU, in single precision.

    Attributes:
        name: As torchvision calls it.
        weights: Name of the weights, or ``random``.
        labels: One for each class, in order.
        preprocessing: What it was trained for.

    Args:
        name: As torchvision calls it.
        weights: Name of the weights, ``DEFAULT`` for the best, or None for random ones.
        seed: Of random weights.

    Raises:
        ExportError: There is no such classifier, no such weights, or they cannot be downloaded.
    """

    def __init__(self, name: str, weights: str | None = "DEFAULT", seed: int = 0) -> None:
        entry = _weights(name, weights or "DEFAULT")
        transforms = entry.transforms()
        self.name = name
        self.weights = entry.name if weights is not None else f"random (seed {seed})"
        self.labels: tuple[str, ...] = tuple(entry.meta["categories"])
        self.preprocessing = _preprocessing(transforms)
        self._transforms = transforms
        set_threads(available_cores(), 1)
        self._network = (_pretrained(name, entry) if weights is not None else _random(name, seed)).eval()

    def scores(self, rows: NDArray[np.generic]) -> Scores:
        """The scores of rows of the input, shape (rows, classes)."""
        return self._in_parts([torch.from_numpy(row) for row in rows])

    def scores_of_files(self, files: Sequence[Path]) -> Scores:
        """The scores of photos that torchvision's own transforms have prepared, after they were turned upright."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow on odd palettes
            return self._in_parts([self._transforms(_upright(file)) for file in files])

    def save_onnx(self, file: Path, image: str, scores: str) -> None:
        """Write the network as ONNX, for any number of rows. Raises ExportError."""
        dynamic = {image: {0: "rows"}, scores: {0: "rows"}}
        with self._exporting("ONNX"):
            # The older of the two exporters: it needs no further package, and is the same in all supported releases.
            torch.onnx.export(
                self._network,
                (self._example(),),
                str(file),
                input_names=[image],
                output_names=[scores],
                dynamic_axes=dynamic,
                opset_version=_OPSET,
                dynamo=False,
            )

    def save_torchscript(self, file: Path) -> None:
        """Write the network as TorchScript. Raises ExportError."""
        with self._exporting("TorchScript"):
            torch.jit.save(torch.jit.trace(self._network, self._example()), str(file))

    def _in_parts(self, rows: Sequence[Any]) -> Scores:
        parts = [torch.stack(list(rows[at : at + _ROWS_AT_ONCE])) for at in range(0, len(rows), _ROWS_AT_ONCE)]
        with torch.inference_mode():
            return cast("Scores", torch.cat([self._network(part) for part in parts]).numpy())

    def _example(self) -> Any:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(_TRACED_ROWS, *self.preprocessing.row_shape, generator=generator)

    @contextmanager
    def _exporting(self, what: str) -> Iterator[None]:
        try:
            with torch.no_grad(), _plain_attention(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecated tools, and values that tracing takes for constants
                yield
        except OSError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:500]
            raise ExportError(f"{self.name}: PyTorch {torch.__version__} cannot write it as {what}: {text}") from error


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Without the joined operator that PyTorch takes for attention in evaluation, which no exporter knows."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _weights(name: str, weights: str) -> Any:
    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, known) or ["resnet50", "mobilenet_v3_large", "vit_b_16"]
        raise ExportError(f"'{name}' is no classifier of torchvision {_version()}, expected e.g. {', '.join(near)}")
    choices = models.get_model_weights(name)
    wanted = weights.rpartition(".")[2]
    if wanted not in choices.__members__:
        raise ExportError(f"{name}: found weights '{weights}', expected one of {', '.join(choices.__members__)}")
    return choices[wanted]


def _version() -> str:
    import torchvision  # noqa: PLC0415 - for a message

    return str(torchvision.__version__)


def _preprocessing(transforms: Any) -> Preprocessing:
    """The preset; its mean and std are of 0..1."""
    return Preprocessing(
        resize=transforms.resize_size[0],
        crop=transforms.crop_size[0],
        filter=transforms.interpolation.value,
        colour="RGB",
        mean=tuple(round(255 * value, 6) for value in transforms.mean),
        std=tuple(round(255 * value, 6) for value in transforms.std),
        layout="CHW",
        output="logits",
    )


def _pretrained(name: str, entry: Any) -> Any:
    try:
        return models.get_model(name, weights=entry, progress=False)
    except (OSError, RuntimeError) as error:  # RuntimeError: the file is not what it should be
        reason = " ".join(str(error).split())[:200]
        raise ExportError(
            f"{name}: weights {entry.name} cannot be downloaded ({reason}); use --random-weights, or put the file "
            f"{entry.url.rpartition('/')[2]} into the directory hub/checkpoints below $TORCH_HOME"
        ) from error


def _random(name: str, seed: int) -> Any:
    arguments = {"init_weights": True, "aux_logits": False} if name in _WITH_AUXILIARY else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = models.get_model(name, weights=None, **arguments)
        for weights in network.parameters():
            # Transformers begin with a last layer of zeros: all scores would be 0, and every variant right.
            if weights.ndim > 1 and not weights.any():
                torch.nn.init.trunc_normal_(weights, std=0.02)
    return network


def _upright(file: Path) -> Image.Image:
    with Image.open(file) as image:
        return ImageOps.exif_transpose(image).convert("RGB")
