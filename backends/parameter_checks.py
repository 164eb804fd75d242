"""What engines refuse before they load anything: read as they will read it, without any engine."""

from backends.errors import LoadError
from backends.fake import create_executors as create_fakes
from backends.onnx_engine.providers import CPU, CUDA, OPENVINO, TENSORRT, choose_providers
from backends.onnx_engine.settings import read_settings
from backends.ports import Placement
from backends.reshaping import inner_spec
from backends.tensorrt_engine.jobs import check_placement
from backends.tensorrt_engine.keys import build_options
from backends.torch_engine.parameters import read_parameters
from models.spec import ModelSpec


def parameter_problem(spec: ModelSpec, placement: Placement) -> LoadError | None:
    """What the version's backend would refuse about its device and the parameters, those of accelerators included.

    Args:
        spec: The version.
        placement: Where its instances would be.
    """
    try:
        _read(inner_spec(spec), placement)
    except LoadError as error:
        return error
    return None


def _read(spec: ModelSpec, placement: Placement) -> None:
    match spec.backend:
        case "fake":
            create_fakes(spec, placement)
        case "onnxruntime":
            choose_providers(spec, placement, read_settings(spec, placement), (CPU, CUDA, OPENVINO, TENSORRT))
        case "pytorch":
            read_parameters(spec)
        case "tensorrt":
            check_placement(spec, placement)
            build_options(spec)
        case _:  # code reads its own
            return
