"""Versions with mistakes, read as far as they go: for further checks, never to be served."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from models.config import version_spec
from models.errors import ModelsError
from models.pbtxt import ConfigText
from models.side_file import SideFile
from models.side_file_parts import Parts
from models.spec import ModelSpec

_OF_LABELS = ("labels", "output", "preprocessing", "golden")  # of shoal.toml; no policy or engine asks for them
_OF_EXECUTION = ("dynamic_batching", "instance_group", "optimization")  # of config.pbtxt
_OF_MACHINE = ("instance_group", "optimization.execution_accelerators")  # what only a whole specification is asked for


class Drafts(NamedTuple):
    """What could be read.

    Attributes:
        specs: By version, as far as there is a specification without the mistakes.
        unchecked: What is not in them, though the files have it.
    """

    specs: tuple[ModelSpec, ...] = ()
    unchecked: tuple[str, ...] = ()


def draft_versions(text: ConfigText, parts: Parts, directory: Path, versions: Sequence[int]) -> Drafts:
    """Leave out more and more until a specification comes out. Blocks on file reads; runs no code of models.

    Args:
        text: The parsed config.pbtxt; not changed.
        parts: What is right in shoal.toml.
        directory: The model's directory.
        versions: Those that cannot be served.
    """
    bare_side = _without(parts.side, _OF_LABELS)
    bare_text = text.copy()
    for output in bare_text.message.output:
        output.ClearField("label_filename")
    bare_text.message.ClearField("model_warmup")
    barest_text = bare_text.copy()
    for field in _OF_EXECUTION:
        barest_text.message.ClearField(field)
    machine = [field for field in _OF_MACHINE if _mentions(text, field)]
    tries = ((text, parts.side, ()), (bare_text, bare_side, ()), (barest_text, bare_side, machine))
    for tried, side, unchecked in tries:
        specs = tuple(_specs(tried, side, directory, versions))
        if specs:
            return Drafts(specs, (*parts.left_out, *unchecked))
    engine = ["parameters"] if _mentions(text, "parameters") else []
    batching = parts.side.tables.batching
    policy = ["batching.policy"] if batching.policy or batching.parameters else []
    return Drafts((), (*parts.left_out, *policy, *engine, *machine))


def _mentions(text: ConfigText, field: str) -> bool:
    return any(path.startswith(field) for path in text.lines.line_by_field)


def _specs(text: ConfigText, side: SideFile, directory: Path, versions: Sequence[int]) -> Iterable[ModelSpec]:
    for version in versions:
        try:
            yield version_spec(text, side, directory, version)
        except (ModelsError, OSError):  # which reading the model has told already
            continue


def _without(side: SideFile, names: Sequence[str]) -> SideFile:
    tables = side.tables.model_copy(update=dict.fromkeys(names))
    return SideFile(lines=side.lines, tables=tables)
