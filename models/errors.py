"""Everything that can be wrong with a model, a repository, a request or an image.

ModelsError
├── ConfigError              a configuration file says something impossible
│   └── ConfigSyntaxError    it does not even parse
├── RepositoryError          a repository cannot be used
│   ├── ArchiveError         an archive is damaged, unsafe or incomplete
│   ├── GoldenMismatchError  photographs give other rows or classes than were recorded
│   └── SeveralProblemsError several of these at once
├── ModelUnavailableError    the requested model or version cannot answer
│   ├── ModelNotFoundError
│   ├── VersionNotFoundError
│   ├── VersionNotReadyError
│   ├── NotReadyYetError
│   └── NoVersionError
├── ControlError             a model cannot be loaded, unloaded or scaled as asked
│   ├── ControlNotAllowedError
│   ├── UnknownModelError
│   ├── LoadFailedError
│   └── LoadParameterError
├── InvalidRequestError      the request does not fit the model
│   ├── MalformedRequestError    it does not even parse
│   │   ├── JsonAccessError      its JSON is none, lacks a member, or has one of another type
│   │   └── IncompleteStringError    its binary data end within an element
│   ├── UnknownTensorError   it names an input or output that the model does not have
│   └── NotClassifierError   /classify on a model without preprocessing
└── ImageError               one encoded image cannot be used
    ├── UnsupportedImageError    not a format that is decoded here
    ├── BrokenImageError         right format, damaged content
    └── ImageTooLargeError       over a limit, found before decoding

Texts name what was found, what was expected, where, and never a path of this machine beyond the repository's own.
"""

import copyreg
from collections.abc import Sequence
from typing import Any

from typing_extensions import override


class ModelsError(Exception):
    """Base of all errors of this package. Instances survive copying and pickling, whatever their constructors."""

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(ModelsError):
    """A configuration file has an impossible value.

    Attributes:
        source: File name as the user knows it, e.g. ``resnet/config.pbtxt``.
        line: 1-based line, or None when the problem is a missing field.
        field: Field path, e.g. ``input[0].dims[1]``.
        found: What it says.
        expected: What it may say.
        fix: The line to write instead, where it can be told, else empty.
    """

    def __init__(
        self, *, source: str, line: int | None = None, field: str, found: str, expected: str, fix: str = ""
    ) -> None:
        where = source if line is None else f"{source}:{line}"
        hint = f"; write: {fix}" if fix else ""
        super().__init__(f"{where}: {field}: found {found}, expected {expected}{hint}")
        self.source = source
        self.line = line
        self.field = field
        self.found = found
        self.expected = expected
        self.fix = fix


class ConfigSyntaxError(ConfigError):
    """The file does not parse, so that nothing is known about its values yet."""


class RepositoryError(ModelsError):
    """A model repository, or a model directory in it, cannot be used."""


class ArchiveError(RepositoryError):
    """An archive is damaged, unsafe, too large or lacks something."""


class SeveralProblemsError(RepositoryError):
    """Several things are wrong with one model.

    Attributes:
        problems: Each of them, at least two.
    """

    def __init__(self, problems: Sequence[ModelsError]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class GoldenMismatchError(RepositoryError):
    """A golden photograph gives another row or other classes than were recorded; the version is not served."""

    def __init__(self, model: str, version: int, problem: str) -> None:
        super().__init__(f"{model}: version {version}: golden photographs: {problem}")
        self.model = model
        self.version = version


class ModelUnavailableError(ModelsError):
    """The requested model or version cannot answer."""


class ModelNotFoundError(ModelUnavailableError):
    """No model of this name is known."""

    def __init__(self, model: str) -> None:
        shown = model if len(model) <= 256 else f"{model[:256]}..."
        super().__init__(f"Request for unknown model: '{shown}' is not found")
        self.model = model


class VersionNotFoundError(ModelUnavailableError):
    """The model is known, this version of it is not."""

    def __init__(self, model: str, version: int | str) -> None:
        super().__init__(f"Request for unknown model: '{model}' version {version} is not found")
        self.model = model
        self.version = version


class VersionNotReadyError(ModelUnavailableError):
    """The version exists but is loading, unloading or failed."""

    def __init__(self, model: str, version: int) -> None:
        super().__init__(f"Request for unknown model: '{model}' version {version} is not at ready state")
        self.model = model
        self.version = version


class NoVersionError(ModelUnavailableError):
    """The model is known and none of its versions is ready."""

    def __init__(self, model: str) -> None:
        super().__init__(f"Request for unknown model: '{model}' has no available versions")
        self.model = model


class NotReadyYetError(ModelUnavailableError):
    """What could answer is loading, or has no instances at the moment."""


class ControlError(ModelsError):
    """A model cannot be loaded, unloaded or scaled as asked."""


class ControlNotAllowedError(ControlError):
    """The model control mode does not allow it; by default with Triton's words for load and unload."""

    def __init__(
        self,
        text: str = "explicit model load / unload is not allowed if polling is enabled",
    ) -> None:
        super().__init__(text)


class UnknownModelError(ControlError):
    """The model is in no repository."""

    def __init__(self, model: str) -> None:
        super().__init__(f"failed to load '{model[:256]}', failed to poll from model repository")
        self.model = model


class LoadFailedError(ControlError):
    """A load or reload has failed; what was served before goes on."""

    def __init__(self, model: str, reasons: str) -> None:
        super().__init__(f"load failed for model '{model}': {reasons}")
        self.model = model


class LoadParameterError(ControlError):
    """A parameter of a load request is not accepted."""


class InvalidRequestError(ModelsError):
    """The request does not fit the model that it names.

    Attributes:
        pointer: JSON pointer to the offending member of the request body, e.g. ``/inputs/0/shape``; empty if none.
    """

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(f"{message} (at {pointer})" if pointer else message)
        self.pointer = pointer


class MalformedRequestError(InvalidRequestError):
    """The request body cannot be read at all."""


class JsonAccessError(MalformedRequestError):
    """The body is no JSON, lacks a member, or has one of the wrong type."""


class IncompleteStringError(MalformedRequestError):
    """Binary data of type BYTES end within an element."""


class UnknownTensorError(InvalidRequestError):
    """The request names an input or an output that the model does not have."""


class NotClassifierError(InvalidRequestError):
    """The model cannot classify encoded images: it declares no preprocessing."""


class ImageError(ModelsError):
    """One encoded image cannot be used; the others of the same request can."""


class UnsupportedImageError(ImageError):
    """The bytes are not an image in one of the accepted formats."""


class BrokenImageError(ImageError):
    """The header is fine, the content is damaged or makes no sense."""


class ImageTooLargeError(ImageError):
    """Bytes, sides or pixels are over the limit; found in the header, before decoding."""
