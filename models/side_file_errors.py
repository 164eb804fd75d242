"""What is wrong with a shoal.toml, in sentences: every mistake of it, with its line and what to write."""

import difflib
import json
import re
from collections.abc import Mapping
from typing import TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from models.config_lines import TOP_LEVEL, ConfigLines
from models.errors import ConfigError, ConfigSyntaxError, ModelsError
from models.problems import as_one

Tables: TypeAlias = Mapping[str, type[BaseModel]]

_PYDANTIC_PREFIX = re.compile(r"\w+ should (be|have) ")
_EXPECTED = {  # by pydantic's type of the mistake, where its own words are not those of a TOML file
    "missing": "a value: it has no default",
    "model_type": "a table",
    "dict_type": "a table",
    "tuple_type": "a list",
    "string_type": "a text in quotes",
    "bool_type": "true or false",
    "string_pattern_mismatch": "a name of letters, digits, '.', '_' and '-' that begins with a letter or '_'",
}
_THREE = {"mean": "three numbers", "std": "three numbers", "background": "three levels: red, green, blue"}
_OWN_SENTENCE = re.compile(r"Value error, found (.*), expected (.*)")  # of the validators of Preprocessing


def not_toml(sentence: str, text: str, source: str) -> ConfigError:
    """The error for a text that does not parse, from the parser's sentence."""
    at = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", sentence)
    line = None
    if at:
        line = int(at[1]) if at[1] else text.count("\n") + 1
    problem = sentence[: at.start()] if at else sentence
    return ConfigSyntaxError(source=source, line=line, field=TOP_LEVEL, found=f"a mistake: {problem}", expected="TOML")


def impossible(error: ValidationError, lines: ConfigLines, tables: Tables) -> ModelsError:
    """The error for keys and values that cannot be; `tables` has the schema of each table by its name."""
    problems = [_impossible_value(detail, lines, tables) for detail in error.errors(include_url=False)]
    return as_one(problems)


def _impossible_value(detail: ErrorDetails, lines: ConfigLines, tables: Tables) -> ConfigError:
    steps = detail["loc"][: -1 if detail["loc"][-1:] == ("[key]",) or _is_about_length(detail) else None]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    if detail["type"] == "extra_forbidden":
        return _unknown_key(detail, path, lines, tables)
    own = _OWN_SENTENCE.fullmatch(detail["msg"])
    if own:
        return lines.error(path, found=own[1], expected=own[2])
    is_absent = detail["type"] == "missing" and not _is_about_length(detail)
    found = "nothing" if is_absent else json.dumps(detail["input"], default=str)
    return lines.error(path or TOP_LEVEL, found=found, expected=_expected(detail, str(steps[-1] if steps else "")))


def _is_about_length(detail: ErrorDetails) -> bool:
    """Whether a list has too few elements, which pydantic says of the first one that is missing."""
    return detail["type"] == "missing" and isinstance(detail["loc"][-1], int)


def _expected(detail: ErrorDetails, key: str) -> str:
    if key in _THREE and (detail["type"] in {"too_long", "tuple_type"} or _is_about_length(detail)):
        return _THREE[key]
    expected = _EXPECTED.get(detail["type"]) or _PYDANTIC_PREFIX.sub("", detail["msg"])
    return f"a number {expected}" if expected.startswith(("greater", "less")) else expected


def _unknown_key(detail: ErrorDetails, path: str, lines: ConfigLines, tables: Tables) -> ConfigError:
    *table, key = map(str, detail["loc"])
    keys = list(tables[".".join(table)].model_fields)
    expected = f"one of {', '.join(keys)}"
    elsewhere = [name for name, model in tables.items() if name and key in model.model_fields]
    near = difflib.get_close_matches(key, keys, n=1)
    if near:
        value = detail["input"]
        is_table = isinstance(value, dict)
        fix = f"[{'.'.join([*table, near[0]])}]" if is_table else f"{near[0]} = {json.dumps(value, default=str)}"
    else:
        fix = f"it below [{elsewhere[0]}]" if elsewhere else ""
    return lines.error(path, found="an unknown key", expected=expected, fix=fix)
