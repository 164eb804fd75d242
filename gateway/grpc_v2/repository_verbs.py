"""Triton's repository extension: index, load, unload."""

from tritonclient.grpc import service_pb2

from gateway.control import IndexEntry, ModelControl, VersionState
from gateway.control_access import GuardedControl, RawHeaders, permitted
from gateway.engine import Engine
from gateway.errors import UnsupportedRequestError
from gateway.grpc_v2.calls import Context, metadata_of
from gateway.grpc_v2.parameters import Message
from models.errors import LoadParameterError, UnknownModelError
from models.model_names import is_model_name

_CHOICE = "parameter_choice"


class RepositoryVerbs:
    """Which models there are, load, unload.

    Args:
        engine: Tells what is ready where there is no control.
        control: The verbs behind their check; None: a server that has none, as in Triton's mode ``none``.
    """

    def __init__(self, engine: Engine, control: GuardedControl | None) -> None:
        self._engine = engine
        self._control = control

    async def index(self, request: Message, _context: Context) -> Message:
        """RepositoryIndex."""
        _check_repository(request)
        if self._control is None:
            entries = [
                IndexEntry(model, version, VersionState.READY)
                for model in self._engine.model_names()
                for version in self._engine.ready_versions(model)
            ]
        else:
            entries = list(await self._control.index())
        answer = service_pb2.RepositoryIndexResponse()
        for entry in entries:
            if entry.state is VersionState.READY or not request.ready:
                answer.models.add(
                    name=entry.model,
                    version="" if entry.version is None else str(entry.version),
                    state="" if entry.state is None else entry.state.value,
                    reason=entry.reason,
                )
        return answer

    async def load(self, request: Message, context: Context) -> Message:
        """RepositoryModelLoad."""
        control = self._permitted(context)
        _check_repository(request)
        if not is_model_name(request.model_name):
            raise UnknownModelError(request.model_name)
        # However long it takes, and also if the client leaves: a load that has begun is brought to its end.
        await control.load(request.model_name, _override(request))
        return service_pb2.RepositoryModelLoadResponse()

    async def unload(self, request: Message, context: Context) -> Message:
        """RepositoryModelUnload."""
        control = self._permitted(context)
        _check_repository(request)
        dependents = _wants_dependents(request)
        if is_model_name(request.model_name):  # of others there is none, and unknown ones are no error
            await control.unload(request.model_name, dependents=dependents)
        return service_pb2.RepositoryModelUnloadResponse()

    def _permitted(self, context: Context) -> ModelControl:
        """The verbs, for a caller that may have them.

        The check of the header Host keeps pages away that a browser was told are on this machine. Browsers cannot
        make such calls, and the library does not tell the header, so it is taken for a good one.
        """
        headers: RawHeaders = [
            (b"host", b"localhost"),
            *(
                (key.encode(), value if isinstance(value, bytes) else value.encode())
                for key, value in metadata_of(context)
            ),
        ]
        return permitted(self._control, headers)


def _check_repository(request: Message) -> None:
    if request.repository_name:
        raise UnsupportedRequestError("'repository_name' specification is not supported")


def _override(request: Message) -> str | None:
    """The configuration to load with, or None."""
    for name, parameter in request.parameters.items():
        kind = parameter.WhichOneof(_CHOICE)
        if name.startswith("file:"):
            if kind != "bytes_param":
                raise _wrong_kind(name, "bytes_param")
            raise LoadParameterError(
                f"found the load parameter '{name[:64]}', expected no files in a request: whoever could send them "
                "could run code here; put them into the repository and load the model from there"
            )
        if name != "config":
            raise LoadParameterError(f"unrecognized load parameter '{name[:64]}'.")
        if kind != "string_param":
            raise _wrong_kind(name, "string_param")
        if not parameter.string_param.strip():
            raise LoadParameterError("found an empty 'config', expected a model configuration in JSON")
    return request.parameters["config"].string_param if "config" in request.parameters else None


def _wrong_kind(name: str, expected: str) -> LoadParameterError:
    return LoadParameterError(f"invalid value type for load parameter '{name[:64]}', expected {expected}.")


def _wants_dependents(request: Message) -> bool:
    if "unload_dependents" not in request.parameters:
        return False
    parameter = request.parameters["unload_dependents"]
    if parameter.WhichOneof(_CHOICE) != "bool_param":
        raise LoadParameterError("invalid value type for 'unload_dependents' parameter, expected bool_param.")
    return bool(parameter.bool_param)
