"""What a config.pbtxt says to code for Triton's python backend, and what that code says of itself."""

import io
import itertools
import json
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from google.protobuf import json_format  # type: ignore[import-untyped]

from models.errors import ConfigError, RepositoryError
from models.pbtxt import ConfigText, ModelConfig, to_json

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
"""In the value of a parameter: the model's directory."""

Completer = Callable[[Path, str], str]
"""Asks a model's code to complete its configuration: the code's file and the configuration as JSON to such JSON."""

_ENVIRONMENT = "EXECUTION_ENV_PATH"
_LINE_STARTS = (tokenize.ENCODING, tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
_COMPLETED = ("input", "output", "dynamic_batching", "model_transaction_policy")


def environment_problems(text: ConfigText) -> Iterator[ConfigError]:
    """An environment of its own for a model's code is not made."""
    parameters = text.message.parameters
    if _ENVIRONMENT in parameters:
        expected = (
            "no such parameter: code runs with the server's own Python and packages; install there what is in the "
            "archive (pip install ...) and remove the parameter"
        )
        found = f'"{parameters[_ENVIRONMENT].string_value}"'
        yield text.lines.error(f"parameters.{_ENVIRONMENT}.string_value", found=found, expected=expected)


def parameters_of(config: ModelConfig, directory: Path) -> dict[str, str]:
    """The free parameters, with the model's directory in place of `MODEL_DIRECTORY`."""
    place = str(directory.absolute())
    return {key: value.string_value.replace(MODEL_DIRECTORY, place) for key, value in config.parameters.items()}


def is_triton_code(config: ModelConfig, file: Path) -> bool:
    """Whether the version's code has a class ``TritonPythonModel``. The text is read and not run."""
    return bool(config.backend == "python") and _defines(file, "TritonPythonModel")


def complete_from_code(text: ConfigText, file: Path, completer: Completer | None) -> bool:
    """Let the code declare its inputs and outputs where the configuration lacks some.

    Args:
        text: Its message is completed.
        file: The version's code.
        completer: Runs ``auto_complete_config`` with a configuration as JSON; None: no code is to be run.

    Returns:
        Whether the code was asked.

    Raises:
        RepositoryError: The code fails, or makes no configuration of it.
    """
    config = text.message
    lacks_some = not (config.input and config.output)
    if completer is None or not lacks_some or not is_triton_code(config, file):
        return False
    completed = _parsed(completer(file, json.dumps(to_json(config))), config.name)
    config.max_batch_size = completed.max_batch_size
    for field in _COMPLETED:
        config.ClearField(field)
        if field in ("input", "output"):
            getattr(config, field).extend(getattr(completed, field))
        elif completed.HasField(field):
            getattr(config, field).CopyFrom(getattr(completed, field))
    return True


def _parsed(completed: str, model: str) -> ModelConfig:
    try:
        return json_format.Parse(completed, ModelConfig())
    except json_format.ParseError as error:
        text = f"model '{model}': auto_complete_config: found a configuration that cannot be one ({error})"
        raise RepositoryError(f"{text}, expected the fields of config.pbtxt") from error


def _defines(file: Path, name: str) -> bool:
    """Whether a name is given to something in a file of Python: by class, import or assignment."""
    before = ""
    is_import, starts_line = False, True
    for token, following in itertools.pairwise(_tokens(file)):
        is_name = token.type == tokenize.NAME and token.string == name
        is_given = following.string == "=" or (following.string == ":" and starts_line)
        if is_name and (before == "class" or is_import or is_given):
            return True
        starts_line = token.type in _LINE_STARTS
        before = token.string
        is_import = token.type != tokenize.NEWLINE and (is_import or before == "import")
    return False


def _tokens(file: Path) -> Sequence[tokenize.TokenInfo]:
    source = file.read_bytes()
    try:
        try:
            return list(tokenize.tokenize(io.BytesIO(source).readline))
        except (SyntaxError, UnicodeDecodeError):  # Python takes bytes of any encoding in a comment
            return list(tokenize.generate_tokens(io.StringIO(source.decode(errors="replace")).readline))
    except (tokenize.TokenError, SyntaxError):
        return ()  # what is wrong with it is told when it is loaded
