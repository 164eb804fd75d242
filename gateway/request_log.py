"""The engine with one log line a request."""

import logging
from functools import partial
from typing import Any

from typing_extensions import override

from batching.clock import MILLISECOND_NS, Clock
from batching.submissions import Call, Deliver
from gateway.service import InferenceService
from models.inference import ClassifyRequest, ClassifyResponse, InferRequest, InferResponse

_log = logging.getLogger("shoal.request")

Fields = dict[str, object]


class LoggedService(InferenceService):
    """Says for every request what was asked, by which version it was answered and how long it took."""

    def __init__(self, clock: Clock, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._clock = clock

    @override
    def submit(self, request: InferRequest, reply: Deliver[InferResponse]) -> Call | None:
        started_ns = self._clock.now_ns()
        try:
            return super().submit(request, partial(self._answered, request, reply, started_ns))
        except BaseException as error:
            self._tell(request, error, started_ns)
            raise

    def _answered(
        self,
        request: InferRequest,
        reply: Deliver[InferResponse],
        started_ns: int,
        outcome: InferResponse | BaseException,
    ) -> None:
        self._tell(request, outcome, started_ns)
        reply(outcome)

    @override
    async def infer(self, request: InferRequest) -> InferResponse:
        started_ns = self._clock.now_ns()
        try:
            response = await super().infer(request)
        except BaseException as error:
            self._tell(request, error, started_ns)
            raise
        self._tell(request, response, started_ns)
        return response

    def _tell(self, request: InferRequest, outcome: InferResponse | BaseException, started_ns: int) -> None:
        fields: Fields = {"call": "infer", "model": request.model, "request_id": request.request_id}
        if isinstance(outcome, BaseException):
            fields |= {"version": request.version, "outcome": type(outcome).__name__}
        else:
            fields |= {"version": outcome.version, "batch_rows": outcome.timing.batch_rows, "outcome": "ok"}
        self._write(fields, started_ns)

    @override
    async def classify(self, request: ClassifyRequest) -> ClassifyResponse:
        fields: Fields = {"call": "classify", "images": len(request.images), "request_id": request.request_id}
        started_ns = self._clock.now_ns()
        try:
            response = await super().classify(request)
            bad = [type(result).__name__ for result in response.results if isinstance(result, Exception)]
            fields |= {"model": response.model, "version": response.version, "outcome": ",".join(bad) or "ok"}
            fields["batch_rows"] = response.timing.batch_rows
        except BaseException as error:
            fields |= {"model": request.model, "version": request.version, "outcome": type(error).__name__}
            raise
        finally:
            self._write(fields, started_ns)
        return response

    def _write(self, fields: Fields, started_ns: int) -> None:
        fields["total_ms"] = round((self._clock.now_ns() - started_ns) / MILLISECOND_NS, 3)
        _log.info("request", extra={"fields": fields})
