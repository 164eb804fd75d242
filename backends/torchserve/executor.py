"""Models whose code is a TorchServe handler from a .mar archive; see docs/torchserve-models.md."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from backends.errors import ExecutionError, LoadError, PredictionError
from backends.ports import Executor, Placement
from backends.python_loop import thread_event_loop
from backends.torchserve import ts_package
from backends.torchserve.context import Context
from backends.torchserve.handler_code import Handler, HandlerCode
from backends.torchserve.metrics import HandlerMetrics
from backends.torchserve.rows import STATUSES_OF_ERRORS, Request, RowReader, answers_of, joined
from backends.torchserve.utilities import PredictionException
from batching.clock import MILLISECOND_NS, Clock, MonotonicClock
from models.archives.manifest import FILES, file_in_archive
from models.inference import Tensors
from models.spec import ModelSpec


class HandlerExecutor:
    """One instance of a handler. It changes what is importable and the working directory: one process, one handler.

    Args:
        spec: The model version; `file` is ``MAR-INF/MANIFEST.json`` in the directory of the archive's files.
        placement: Whether the handler is told of a GPU, which is always number 0.
        clock: For metrics.
    """

    def __init__(self, spec: ModelSpec, placement: Placement, clock: Clock) -> None:
        self._spec = spec
        self._placement = placement
        self._clock = clock
        self._directory = spec.file.absolute().parent.parent
        self._reader = RowReader(decodes=spec.parameters.get("decode_input_request") != "false")
        self._metrics = HandlerMetrics(spec.name, clock)
        self._code = HandlerCode(spec, self._directory)
        self._surroundings = contextlib.ExitStack()
        self._context: Any = None
        self._handler: Handler | None = None

    def load(self) -> None:
        """Import the handler's code and let it initialize.

        Raises:
            LoadError: The manifest or configuration cannot be read, the code is no handler, or it fails; names the
                user's file and line.
        """
        try:
            self._enter_surroundings()
            self._context = self._new_context()
            handler = self._code.load()
            self._initialize(handler)
            self._handler = handler
        except BaseException:
            self.close()
            raise

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Nothing: a made-up request might mean something to the handler."""

    def run(self, inputs: Tensors, rows: int) -> Tensors:  # noqa: ARG002 - there is one element a row
        """Let the handler answer one batch.

        Args:
            inputs: One element a row, see `models.handler_rows`.
            rows: Of the batch.

        Raises:
            PredictionError: The handler has refused with a status.
            ExecutionError: The handler failed, or what it returned is not one answer for each request. Errors of single
                rows are values in the answer, see `backends.request_answers`.
        """
        read = self._reader.read(inputs[self._spec.inputs[0].name].ravel().tolist())
        requests = [each for each in read if isinstance(each, Request)]
        together = [each for each in requests if not each.is_asked_alone]
        started_ns = self._clock.now_ns()
        answers = iter(answers_of(together, self._answers(together)) if together else ())
        elements = [self._element(each, answers) for each in read]
        self._metrics.add_time("PredictionTime", (self._clock.now_ns() - started_ns) / MILLISECOND_NS)
        self._metrics.report_if_due()
        return joined(self._spec.outputs[0].name, elements)

    def _element(
        self, row: Request | PredictionError, answers: Iterator[bytes | ExecutionError]
    ) -> bytes | ExecutionError:
        """The answer to a row: the next one of the batch's, or that of a call of its own."""
        if not isinstance(row, Request):
            return row
        if not row.is_asked_alone:
            return next(answers)
        try:
            (answer,) = answers_of([row], self._answers([row]))
        except ExecutionError as error:
            return error.with_traceback(None)  # which would keep the batch in memory
        return answer

    def close(self) -> None:
        """Let go of the handler. Safe to call twice."""
        if self._handler is not None:
            self._metrics.report()
        self._handler = None
        self._context = None
        self._surroundings.close()

    def _enter_surroundings(self) -> None:
        """What TorchServe's workers give: the working directory, and what can be imported."""
        leave = self._surroundings.callback
        self._surroundings.enter_context(contextlib.chdir(self._directory))
        self._surroundings.enter_context(thread_event_loop())
        directory, requirements = str(self._directory), self._spec.parameters.get("requirements_dir", "")
        path = list(sys.path)
        leave(lambda: sys.path.__setitem__(slice(None), path))
        if directory not in sys.path:
            sys.path.insert(0, directory)
        if requirements and requirements not in sys.path:
            sys.path.insert(sys.path.index(directory) + 1, requirements)
        ts_package.install()
        leave(ts_package.uninstall)
        leave(self._code.code.unload)

    def _new_context(self) -> Context:
        manifest = self._read(self._spec.file, json.loads)
        files = self._files_of(manifest)
        if files:
            manifest = {**manifest, "model": {**manifest["model"], **files}}
        config_file = files.get("configFile")
        config = self._read(self._directory / config_file, yaml.safe_load) if config_file else {}
        return Context(
            self._spec.name,
            str(self._directory),
            manifest,
            self._spec.max_batch_rows,
            0 if self._placement.is_gpu else None,
            ts_package.VERSION,
            self._spec.parameters.get("limit_max_image_pixels") != "false",
            self._metrics,
            config,
        )

    def _files_of(self, manifest: Mapping[str, Any]) -> Mapping[str, str]:
        """The names that a manifest's files have in the archive, which handlers join to ``model_dir``."""
        described = manifest.get("model")
        given = described if isinstance(described, dict) else {}
        named = {key: name for key in FILES if isinstance(name := given.get(key), str) and name}
        return {key: file_in_archive(self._directory, name) or Path(name).name for key, name in named.items()}

    def _read(self, file: Path, parse: Any) -> Mapping[str, Any]:
        """A file of the archive, an object at the top of it; an empty one counts as such."""
        try:
            found = parse(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
            raise self._error(f"{file.name}: cannot be read: {reason}") from error
        if not isinstance(found, dict) and found is not None:
            raise self._error(f"{file.name}: found {type(found).__name__}, expected an object")
        return found or {}

    def _error(self, text: str) -> LoadError:
        return LoadError(f"model '{self._spec.name}' version {self._spec.version}: {text}")

    def _initialize(self, handler: Handler) -> None:
        try:
            handler.initialize(self._context)
        except BaseException as error:  # noqa: BLE001 - whatever the handler raises
            failure = self._code.code.load_error(error)
        else:
            return
        raise failure

    def _answers(self, requests: Sequence[Request]) -> object:
        if self._handler is None:
            raise ExecutionError("the handler is not loaded")
        self._context.request_ids = {index: request.request_id for index, request in enumerate(requests)}
        self._context.request_processor = [request.processor for request in requests]
        try:
            return self._handler.handle([request.values for request in requests], self._context)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt fail the batch, too
            failure = self._failure(error)
        raise failure  # outside, because the original's traceback would keep the batch in memory

    def _failure(self, error: BaseException) -> ExecutionError:
        installed = getattr(sys.modules.get("ts.utils.util"), "PredictionException", PredictionException)
        if not isinstance(error, PredictionException | installed):
            return self._code.code.execution_error(error)
        status: Any = getattr(error, "error_code", 500)
        is_status = isinstance(status, int) and status in STATUSES_OF_ERRORS
        return PredictionError(str(error.message), status=int(status) if is_status else 500)


def create_executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
    """One lane for each instance."""
    clock = MonotonicClock()
    return [[HandlerExecutor(spec, placement, clock)] for _ in range(placement.instances)]
