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
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"]).lstrip(".")
    if detail["type"] == "extra_forbidden":
        return _unknown_key(detail, path, lines, tables)
    own = _OWN_SENTENCE.fullmatch(detail["msg"])
    if own:
        return lines.error(path, found=own[1], expected=own[2])
    found = "nothing" if detail["type"] == "missing" else json.dumps(detail["input"], default=str)
    return lines.error(path or TOP_LEVEL, found=found, expected=_PYDANTIC_PREFIX.sub("", detail["msg"]))


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
