"""What is wrong with a repository, or has no effect, as data: one shape for config files, archives and directories.

Errors of a configuration have their parts. Those of directories and archives, and all notes, are sentences of the form
``WHERE: found THIS, expected THAT; DO SO``, which are taken apart here.
"""

import enum
import re
from dataclasses import dataclass, replace

from models.errors import ConfigError, ConfigSyntaxError

_SENTENCE = re.compile(
    r"(?P<file>[^\s:,]+)(?::(?P<line>\d+))?: (?:(?P<field>[\w.\[\]]+): )?(?:found )?"
    r"(?P<found>.*?)(?:, expected (?P<expected>.*?))?(?:; (?P<fix>.*))?",
    re.DOTALL,
)
_WITHOUT_EFFECT = re.compile(r"(?P<where>.+): has no effect: (?P<reason>.*)", re.DOTALL)
_VERSION = re.compile(r"[^/]+/(\d+)(/|$)")


class Severity(enum.Enum):
    """Whether a model is kept from being served."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to know about a model.

    Attributes:
        severity: Whether it can be served nevertheless.
        model: Name of the model; empty if it concerns none.
        version: The version that it concerns, or None for all of them.
        file: File or directory as the user knows it, e.g. ``resnet/config.pbtxt``; empty if there is none.
        line: 1-based line, or None.
        field: Field path, e.g. ``input[0].dims[1]``; empty if there is none.
        found: What there is.
        expected: What should be there; empty if `found` says it all.
        fix: The line to write, or what to do; empty if that cannot be told.
    """

    severity: Severity
    model: str
    version: int | None = None
    file: str = ""
    line: int | None = None
    field: str = ""
    found: str
    expected: str = ""
    fix: str = ""


def finding_of(model: str, problem: Exception, *, version: int | None = None) -> Finding:
    """What keeps a model from being served."""
    if isinstance(problem, ConfigError):
        return Finding(
            severity=Severity.ERROR,
            model=model,
            version=version,
            file=problem.source,
            line=problem.line,
            field=problem.field,
            found=problem.found,
            expected=problem.expected,
            fix=problem.fix,
        )
    return _taken_apart(Severity.ERROR, model, str(problem), version)


def warning_of(model: str, sentence: str, *, version: int | None = None) -> Finding:
    """What was skipped, or has no effect."""
    without_effect = _WITHOUT_EFFECT.fullmatch(sentence)
    if without_effect is not None:
        sentence = f"{without_effect['where']}: found something"
        parts = _taken_apart(Severity.WARNING, model, sentence, version)
        return replace(parts, found=f"no effect: {without_effect['reason']}", fix="it may stay, or be removed")
    return _taken_apart(Severity.WARNING, model, sentence, version)


def unread_rest(model: str, problem: Exception) -> Finding | None:
    """That more may be wrong than could be found, because a file does not parse."""
    if not isinstance(problem, ConfigSyntaxError):
        return None
    return Finding(
        severity=Severity.WARNING,
        model=model,
        file=problem.source,
        found="values that were not checked, because the file does not parse",
        fix="correct the file and check it again",
    )


def _taken_apart(severity: Severity, model: str, sentence: str, version: int | None) -> Finding:
    parts = _SENTENCE.fullmatch(sentence)
    if parts is None:
        return Finding(severity=severity, model=model, version=version, found=sentence)
    of_version = _VERSION.match(parts["file"])
    return Finding(
        severity=severity,
        model=model,
        version=int(of_version[1]) if version is None and of_version else version,
        file=parts["file"],
        line=int(parts["line"]) if parts["line"] else None,
        field=parts["field"] or "",
        found=parts["found"],
        expected=parts["expected"] or "",
        fix=parts["fix"] or "",
    )
