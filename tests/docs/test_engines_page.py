"""docs/engines.md beside the code: every parameter of every engine has a row."""

import pytest

from backends.onnx_engine.settings import PARAMETERS
from backends.tensorrt_engine.executor import OWN_PARAMETERS
from backends.torch_engine import parameters as torch_parameters
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/engines.md"


def rows_of(section: str) -> set[str]:
    """First cells of the section's table of parameters."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    table = text.partition("| parameter |")[2]
    return {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("ONNX Runtime", set(PARAMETERS)),
        ("PyTorch", set(torch_parameters.KNOWN)),
        ("TensorRT", set(OWN_PARAMETERS)),
    ],
)
def test_every_parameter_of_an_engine_has_a_row(section: str, names: set[str]) -> None:
    assert rows_of(section) == names
