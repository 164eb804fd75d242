"""Command-line flags made from the settings, so that each is declared once."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gateway.settings import Settings

_ALIASES = {"model_repository": ("--model-store",), "http_address": ("--host",)}
_WORDS = frozenset({"true", "false", "1", "0", "yes", "no", "on", "off"})  # those that the settings take for switches


def setting_flags() -> list[inspect.Parameter]:
    """One optional parameter for each setting, for the signature of a typer command."""
    return [_parameter(name, field) for name, field in Settings.model_fields.items()]


def settings_from(given: dict[str, Any]) -> Settings:
    """The settings with the flags that were given; the others come from the environment or are the defaults.

    Raises:
        typer.BadParameter: A value is not allowed; names the flag, what was found and what was expected.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if _is_given(value)})
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        text = problem["msg"].removeprefix("Value error, ")
        found = "" if "found " in text else f", found {problem['input']!r}"
        raise typer.BadParameter(f"{text}{found}", param_hint=_flag(name)) from None


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != []  # 0 is a value: any free port, no lead time


def with_switch_values(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``=true`` at switches that are given bare; ``--allow-cpu false`` has its value already."""
    switches = {_flag(name) for name, field in Settings.model_fields.items() if field.annotation is bool}
    following = [*arguments, ""][1:]
    return [
        f"{argument}=true" if argument in switches and after.lower() not in _WORDS else argument
        for argument, after in zip(arguments, following, strict=True)
    ]


def with_setting_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, which takes the settings as keyword arguments, a flag for each of them."""
    own = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    flags = setting_flags()
    command.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]  # read by typer
    command.__annotations__ |= {flag.name: flag.annotation for flag in flags}
    return command


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    option = typer.Option(
        _flag(name),
        *_ALIASES.get(name, ()),
        help=f"{field.description}{_default(name, field)}",
        metavar=_metavar(field.annotation),
        show_default=False,
    )
    kind = _value_type(field.annotation)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _value_type(annotation: Any) -> Any:
    """What typer converts to; the settings check the rest."""
    if get_origin(annotation) is tuple:
        return list[str]  # not Path, to which an empty word is the current directory
    return annotation if annotation in (int, float, Path) else str


def _metavar(annotation: Any) -> str | None:
    if annotation is bool:
        return "true|false"
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    return None


def _default(name: str, field: FieldInfo) -> str:
    if field.default in ((), None):
        return ""
    default = "~/.cache/shoal" if name == "cache_dir" else field.default
    return f"  [default: {str(default).lower() if isinstance(default, bool) else default}]"
