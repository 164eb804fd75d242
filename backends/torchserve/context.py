"""What a handler is given beside the rows: TorchServe's context, under TorchServe's names."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.handler_rows import HandlerResponse


class RequestProcessor:
    """The headers of one request, and what the handler says of its answer."""

    def __init__(self, request_header: Mapping[str, Any]) -> None:
        self._request_header = dict(request_header)
        self._status = 200
        self._reason = ""
        self._headers: dict[str, str] = {}

    def get_request_property(self, key: str) -> Any:
        """A header as the client wrote it, or a dict with the content type of a field; None if it is not there."""
        return self._request_header.get(key)

    def get_request_properties(self) -> dict[str, Any]:
        """All of them."""
        return self._request_header

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        """Set the answer's status."""
        self._status = int(code)
        self._reason = reason_phrase or ""

    def get_response_status_code(self) -> int:
        """The answer's status."""
        return self._status

    def get_response_status_phrase(self) -> str:
        """The phrase of the answer's status."""
        return self._reason

    def add_response_property(self, key: str, value: str) -> None:
        """Set a header of the answer."""
        self._headers[str(key)] = str(value)

    def get_response_headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return self._headers

    def get_response_header(self, key: str) -> str | None:
        """One of them."""
        return self._headers.get(key)

    def response(self, body: bytes) -> HandlerResponse:
        """The whole answer."""
        return HandlerResponse(body=body, status=self._status, reason=self._reason, headers=self._headers)


class Context:
    """The model, its configuration, and the requests of the running batch, which `idx` counts from 0.

    Attributes:
        model_name: Its name.
        manifest: ``MAR-INF/MANIFEST.json`` as a dict.
        model_yaml_config: The archive's configuration file as a dict; empty if there is none.
        metrics: See `HandlerMetrics`.
        request_ids: By index.
        request_processor: By index.
        cl_socket: Always None: answers are not streamed.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - TorchServe's signature, which tests of handlers use
        self,
        model_name: str,
        model_dir: str,
        manifest: Mapping[str, Any] | None,
        batch_size: int,
        gpu: int | None,
        mms_version: str,
        limit_max_image_pixels: bool = True,
        metrics: Any = None,
        model_yaml_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.model_name = model_name
        self.manifest = manifest
        self.model_yaml_config = {} if model_yaml_config is None else model_yaml_config
        self.metrics = metrics
        self.request_ids: Mapping[int, str] | None = None
        self.request_processor: Sequence[RequestProcessor] = ()
        self.cl_socket = None
        self._system_properties = {
            "model_dir": model_dir,
            "gpu_id": gpu,
            "batch_size": batch_size,
            "server_name": "MMS",
            "server_version": mms_version,
            "limit_max_image_pixels": limit_max_image_pixels,
        }

    @property
    def system_properties(self) -> dict[str, Any]:
        """What TorchServe tells of itself and of where the model is; the keys stand in the constructor."""
        return self._system_properties

    def get_request_id(self, idx: int = 0) -> str | None:
        """The id of a request."""
        return None if self.request_ids is None else self.request_ids.get(idx)

    def get_sequence_id(self, idx: int) -> str:
        """What the client calls its sequence; requests of a sequence are not kept together."""
        return str(self.get_request_header(idx, "ts_request_sequence_id") or "")

    def get_request_header(self, idx: int, key: str) -> Any:
        """A header of a request, by its name as the client wrote it; None if it is not there."""
        return self.request_processor[idx].get_request_property(key)

    def get_all_request_header(self, idx: int) -> dict[str, Any]:
        """All headers of a request, and for each of its fields a dict with the content type."""
        return self.request_processor[idx].get_request_properties()

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Set the content type of an answer."""
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx: int) -> str | None:
        """The content type of an answer, if it was set."""
        return self.get_response_headers(idx).get("content-type")

    def get_response_status(self, idx: int) -> tuple[int, str]:
        """Status and phrase of an answer."""
        processor = self.request_processor[idx]
        return processor.get_response_status_code(), processor.get_response_status_phrase()

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Set the status of an answer."""
        if self.request_processor:
            self.request_processor[idx].report_status(code, phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        """Set the status of all answers of the batch."""
        for processor in self.request_processor:
            processor.report_status(code, phrase)

    def get_response_headers(self, idx: int) -> dict[str, str]:
        """The headers of an answer that were set."""
        return self.request_processor[idx].get_response_headers()

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Set a header of an answer."""
        self.request_processor[idx].add_response_property(key, value)
