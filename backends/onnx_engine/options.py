"""Options of config.pbtxt for ONNX Runtime: texts under Triton's names, checked, as texts under the engine's names."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from backends.errors import LoadError


class Option(NamedTuple):
    """One option that an engine or provider has.

    Attributes:
        parse: From the configuration's text to the engine's; raises ValueError that says what is expected.
        name: What the engine calls it; empty if it has the same name there.
        refusal: Why it cannot be set here and what to do instead; empty if it can.
    """

    parse: Callable[[str], str] = str
    name: str = ""
    refusal: str = ""


def flag(text: str) -> str:
    """``1`` or ``0``."""
    word = text.lower()
    if word not in {"0", "1", "true", "false"}:
        raise ValueError("true, false, 1 or 0")
    return "1" if word in {"1", "true"} else "0"


def word_flag(text: str) -> str:
    """``True`` or ``False``: for its TensorRT provider, ONNX Runtime's interface to Python takes no other words."""
    return "True" if flag(text) == "1" else "False"


def number(text: str) -> str:
    """A whole number from 0 up."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("a number from 0 up")
    return text


def one_of(*words: str) -> Callable[[str], str]:
    """One of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(" or ".join(words))
        return text

    return parse


def numbered(*words: str) -> Callable[[str], str]:
    """One of these words, or its position from 0, which is how parameters of a model give it."""

    def parse(text: str) -> str:
        if text not in words and text not in map(str, range(len(words))):
            raise ValueError(" or ".join(f"{word} ({position})" for position, word in enumerate(words)))
        return text if text in words else words[int(text)]

    return parse


def read_option(what: str, name: str, text: str, known: Mapping[str, Option]) -> tuple[str, str]:
    """The engine's name of an option and the engine's text for its value.

    Args:
        what: Of which model it is the what, e.g. ``model 'm': parameter``.
        name: As the configuration gives it.
        text: Its value.
        known: All options by the configuration's names.

    Raises:
        LoadError: The option is not known, cannot be set, or has another kind of value.
    """
    option = known.get(name)
    if option is None:
        can_be_set = ", ".join(sorted(name for name, option in known.items() if not option.refusal))
        raise LoadError(f"{what} '{name}' is not known, expected one of {can_be_set or 'none'}")
    if option.refusal:
        raise LoadError(f"{what} '{name}' cannot be set: {option.refusal}")
    try:
        return option.name or name, option.parse(text)
    except ValueError as error:
        raise LoadError(f"{what} '{name}' is '{text}', expected {error}") from None


def read_options(what: str, given: Mapping[str, str], known: Mapping[str, Option]) -> dict[str, str]:
    """All given options under the engine's names. Raises LoadError as `read_option` does."""
    return dict(read_option(what, name, text, known) for name, text in given.items())
