"""The `parameters` of a PyTorch model's config.pbtxt: our words, and those of Triton's LibTorch backend."""

import difflib
import enum
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from backends.errors import LoadError
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


class Precision(enum.Enum):
    """In which element type a model computes; its weights stay as they are."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def largest_difference(self) -> float:
        """Relative difference to fp32 above which a model is refused, unless it says otherwise.

        Half precision keeps 11 bits of a number (relative step 5e-4), bfloat16 8 bits (4e-3); networks of a hundred
        layers add up ten to twenty of such steps.
        """
        return {Precision.FP32: math.inf, Precision.FP16: 0.02, Precision.BF16: 0.1}[self]


class Optimize(enum.Enum):
    """What is done to a TorchScript file after loading it."""

    NONE = "none"
    FREEZE = "freeze"
    INFERENCE = "inference"


COMPILE_MODES: Mapping[str, str | None] = {
    "false": None,
    "true": "default",
    "default": "default",
    "max-autotune": "max-autotune-no-cudagraphs",
}
# What they set no longer exists, is always done here, or would hold for every model of the process.
_WITHOUT_EFFECT = {
    "enable_nvfuser": "PyTorch has no NVFuser any more",
    "enable_tensor_fuser": "the fuser is a setting of the whole process",
    "enable_jit_executor": "the executor is a setting of the whole process",
    "enable_jit_profiling": "the profiler is a setting of the whole process",
    "enable_weight_sharing": "instances always share their weights",
    "enable_cache_cleaning": "memory is given back when it runs out",
    "disable_cudnn": "cuDNN is a setting of the whole process",
    "force_cpu_only_input_tensors": "inputs always come from host memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchParameters:
    """How a PyTorch model is made and run.

    Attributes:
        model_class: ``file.py:Class`` in the version directory, for a state dict; or empty.
        torchvision_model: Name of one of torchvision's models; or empty.
        model_arguments: Keyword arguments of the class or of torchvision's builder.
        precision: Element type of the computation.
        precision_check: Largest relative difference to fp32 that is accepted; infinite means no check.
        compile_mode: Mode of torch.compile; None runs the model as it is.
        channels_last: Keep images and weights in memory with the channels last.
        optimize: For TorchScript.
        is_optimized: TorchScript may specialise itself for the shapes that it sees.
        inference_mode: Run in inference mode; else only without gradients.
        cuda_graphs: Replay recorded kernels on GPUs.
        intra_op_threads: Threads of one batch on the CPU; 0 divides the cores among the instances.
        inter_op_threads: Operators at once on the CPU.
    """

    model_class: str = ""
    torchvision_model: str = ""
    model_arguments: Mapping[str, Any] = field(default_factory=dict)
    precision: Precision = Precision.FP32
    precision_check: float = math.inf
    compile_mode: str | None = None
    channels_last: bool = False
    optimize: Optimize = Optimize.FREEZE
    is_optimized: bool = True
    inference_mode: bool = True
    cuda_graphs: bool = False
    intra_op_threads: int = 0
    inter_op_threads: int = 1


KNOWN = (
    "model_class",
    "torchvision_model",
    "model_arguments",
    "precision",
    "precision_check",
    "compile",
    "channels_last",
    "optimize",
    "disable_optimized_execution",
    "inference_mode",
    "cuda_graphs",
    "intra_op_thread_count",
    "inter_op_thread_count",
)


def read_parameters(spec: ModelSpec) -> TorchParameters:
    """Read the parameters of a model; their names may be in capitals, as Triton's are.

    Raises:
        LoadError: A value is not valid, or a name is misspelt; says what was found and what is expected.
    """
    reader = _Reader(spec)
    reader.check_names()
    precision = Precision(reader.word("precision", [kind.value for kind in Precision]))
    parameters = TorchParameters(
        model_class=reader.text("model_class"),
        torchvision_model=reader.text("torchvision_model"),
        model_arguments=reader.read("model_arguments", "{}", _arguments, 'a JSON object, e.g. {"num_classes": 10}'),
        precision=precision,
        precision_check=_bound(reader, precision),
        compile_mode=COMPILE_MODES[reader.word("compile", list(COMPILE_MODES))],
        channels_last=reader.flag("channels_last"),
        optimize=Optimize(reader.word("optimize", [way.value for way in Optimize], default="freeze")),
        is_optimized=not reader.flag("disable_optimized_execution"),
        inference_mode=reader.flag("inference_mode", default=True),
        cuda_graphs=reader.flag("cuda_graphs", default=spec.execution.cuda_graphs),
        intra_op_threads=reader.count("intra_op_thread_count"),
        inter_op_threads=reader.count("inter_op_thread_count") or 1,
    )
    if parameters.model_class and parameters.torchvision_model:
        raise reader.error("model_class", "expected it or 'torchvision_model', not both")
    return parameters


class _Reader:
    """The parameters of one model, by names in small letters."""

    def __init__(self, spec: ModelSpec) -> None:
        self._where = f"model '{spec.name}' version {spec.version}"
        self._values = {name.lower(): value for name, value in spec.parameters.items()}

    def check_names(self) -> None:
        """Name what has no effect; a name that is nearly a known one is refused, since it is meant to do something."""
        for name in self._values:
            if name in KNOWN:
                continue
            near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.8)
            if near and name not in _WITHOUT_EFFECT:
                raise self.error(name, f"unknown, did you mean '{near[0]}'? Known are {', '.join(KNOWN)}")
            reason = _WITHOUT_EFFECT.get(name, "the PyTorch backend does not know it")
            logger.info("%s: parameter '%s' has no effect: %s", self._where, name, reason)

    def error(self, name: str, reason: str) -> LoadError:
        found = f" is {self._values[name]!r}" if name in self._values else ""
        return LoadError(f"{self._where}: parameter '{name}'{found}: {reason}")

    def read(self, name: str, default: str, parse: Callable[[str], Value], expected: str) -> Value:
        try:
            return parse(self._values.get(name, default).strip())
        except ValueError:
            raise self.error(name, f"expected {expected}") from None

    def text(self, name: str) -> str:
        return self.read(name, "", str, "a text")

    def word(self, name: str, words: list[str], default: str = "") -> str:
        value = self._values.get(name, default or words[0]).strip().lower()
        if value in words:
            return value
        hint = " (recorded kernels are the parameter cuda_graphs)" if value == "reduce-overhead" else ""
        raise self.error(name, f"expected one of {', '.join(words)}{hint}")

    def flag(self, name: str, *, default: bool = False) -> bool:
        return self.read(name, str(default), _flag, "true or false")

    def count(self, name: str) -> int:
        return self.read(name, "0", _count, "a number from 0 up (0 means the default)")


def _flag(text: str) -> bool:
    word = text.lower()
    if word not in ("true", "false", "1", "0"):
        raise ValueError
    return word in ("true", "1")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError
    return int(text)


def _arguments(text: str) -> dict[str, Any]:
    value = json.loads(text)  # its error is a ValueError
    if not isinstance(value, dict):
        raise ValueError  # noqa: TRY004 - a value that cannot be parsed, like the others
    return value


def _bound(reader: _Reader, precision: Precision) -> float:
    def parse(text: str) -> float:
        words = {"on": precision.largest_difference, "off": math.inf}
        bound = words[text] if text in words else float(text)
        if not bound > 0:
            raise ValueError
        return bound

    return reader.read("precision_check", "on", parse, "on, off, or a relative difference above 0, e.g. 0.05")
