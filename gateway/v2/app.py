"""The v2 protocol (Triton, KServe, Open Inference Protocol) over HTTP, as a bare ASGI application.

The path, not the framework, is hot here: one dictionary or regular expression look-up for each request.
"""

from gateway.asgi import Begin, Offload, Receive, Reply, Scope, Send, send_reply
from gateway.control_access import GuardedControl
from gateway.engine import Engine
from gateway.v2.generate_verbs import GenerateVerbs
from gateway.v2.inference import InferVerb, refusal
from gateway.v2.limits import V2Limits
from gateway.v2.paths import NOT_FOUND, WRONG_METHOD, ModelPath, category_of, parse_path, path_of
from gateway.v2.questions import Questions
from gateway.v2.repository import PREFIX, RepositoryVerbs
from gateway.v2.settings_verbs import SettingsVerbs
from gateway.v2.shared_memory import SharedMemory
from gateway.v2.shared_memory_verbs import PREFIXES as SHARED_MEMORY_PREFIXES
from gateway.v2.shared_memory_verbs import SharedMemoryVerbs
from gateway.v2.surface_settings import SurfaceSettings
from gateway.versions import parse_version
from models.errors import ModelUnavailableError

_MAX_CACHED_PATH = 256  # characters


class V2Surface:
    """The ASGI application for ``/v2`` and everything below it.

    Args:
        engine: What answers.
        limits: Sizes.
        offload: Runs slow decoding and rendering in a thread.
        server_version: What ``GET /v2`` tells.
        control: Loads and unloads models; None: they stay as they are.
        memory: The shared memory of clients; None: one that they cannot register anything in.
        settings: What else can be set; None: nothing is.
    """

    def __init__(
        self,
        engine: Engine,
        limits: V2Limits,
        *,
        offload: Offload,
        server_version: str,
        control: GuardedControl | None = None,
        memory: SharedMemory | None = None,
        settings: SurfaceSettings | None = None,
    ) -> None:
        self._engine = engine
        self._repository = RepositoryVerbs(engine, control, limits, offload=offload)
        memory = memory or SharedMemory(is_enabled=False)
        self._shared_memory = SharedMemoryVerbs(memory, offload=offload)
        settings = settings or SurfaceSettings()
        self._questions = Questions(engine, settings.server_name, server_version)
        self._settings = SettingsVerbs(engine, settings.trace, settings.logs)
        self._generate = GenerateVerbs(engine, limits, offload=offload)
        self._infer = InferVerb(engine, limits, offload=offload, memory=memory, forwarding=settings.forwarding)
        self._restricted = settings.restricted or None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        reply: Reply | None
        try:
            path = path_of(scope)
            if self._restricted is not None:
                self._restricted.check(category_of(path), scope["headers"])
            target = parse_path(path) if len(path) <= _MAX_CACHED_PATH else parse_path.__wrapped__(path)
            if target is None or target.action != "infer" or target.is_labelled:
                reply = await self._answer(path, target, scope, receive)
            else:
                reply = await self._infer_of(target, scope, receive)
        except Exception as error:  # noqa: BLE001 - answered and logged, whatever it is
            reply = refusal(error)
        if reply is not None:
            await send_reply(send, reply)

    def plan(self, scope: Scope) -> Begin | None:
        """How requests with this head are answered without a task; None for all but plain inference."""
        path = path_of(scope)
        if self._restricted is not None or scope["method"] != "POST" or len(path) > _MAX_CACHED_PATH:
            return None
        target = parse_path(path)
        if target is None or target.action != "infer" or target.is_labelled:
            return None
        return self._infer.plan(target, scope)

    async def _infer_of(self, target: ModelPath, scope: Scope, receive: Receive) -> Reply | None:
        return await self._infer.answer(target, scope, receive) if scope["method"] == "POST" else WRONG_METHOD

    async def _answer(self, path: str, target: ModelPath | None, scope: Scope, receive: Receive) -> Reply | None:
        """The answer to everything but inference."""
        if self._questions.has(path):
            return self._questions.answer(path) if scope["method"] == "GET" else WRONG_METHOD
        if target is not None:
            return await self._answer_of_model(target, scope, receive)
        if path.startswith(PREFIX):
            return await self._repository.answer(path, scope, receive)
        if path.startswith(SHARED_MEMORY_PREFIXES):
            return await self._shared_memory.answer(scope, receive)
        return await self._settings.answer(path, scope, receive)

    async def _answer_of_model(self, target: ModelPath, scope: Scope, receive: Receive) -> Reply | None:
        if target.action == "trace/setting":
            return await self._settings.trace(target.model, scope, receive)
        if target.is_labelled and not self._has_label(target):
            return NOT_FOUND
        if target.action == "infer":
            return await self._infer_of(target, scope, receive)
        streams = target.action == "generate_stream"
        generates = streams or target.action == "generate"
        if scope["method"] != ("POST" if generates else "GET"):
            return WRONG_METHOD
        version = None if target.version is None else parse_version(self._engine, target.model, target.version)
        if not generates:
            return self._questions.answer_of_model(target.action, target.model, version)
        spec = self._engine.model(target.model, version)
        return await self._generate.answer(spec, version, scope, receive, streams=streams)

    def _has_label(self, target: ModelPath) -> bool:
        """Whether the model knows the word; to Triton such a path is none at all."""
        try:
            parse_version(self._engine, target.model, target.version or "")
        except ModelUnavailableError:
            return False
        return True
