"""One lane of a ``TritonPythonModel``: a batch becomes requests, and its responses become answers."""

import inspect

import numpy as np
from typing_extensions import override

from backends.python_executor import PythonExecutor
from backends.request_answers import join_answers
from backends.triton_python.answers import answers_of
from backends.triton_python.messages import (
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    ServedRequest,
)
from backends.triton_python.tensors import Tensor
from models.inference import Array, Tensors
from models.request_rows import RequestInfo, RequestRows, requests_of


class TritonPythonExecutor(PythonExecutor):
    """Hands the code the requests of each batch, with their own tensors, ids and parameters."""

    @override
    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """Let the model answer the requests of one batch.

        Returns:
            Dense outputs, or what `backends.request_answers` makes of answers that differ.

        Raises:
            ExecutionError: The code failed, or what it returned are no responses to the requests.
        """
        visible, taken = requests_of(inputs, rows)
        has_rows = self._spec.has_batch_dimension
        # One copy for all: such code may keep its inputs and write to them, and the memory is the next batch's.
        tensors = {name: np.array(array) for name, array in visible.items()}
        counts = [request.end - request.first if has_rows else 1 for request in taken]
        requests = [self._request(tensors, request) for request in taken]
        found = self._shared.execute(requests)
        if inspect.iscoroutine(found):
            found.close()  # or Python warns that nobody awaited it
        answers = answers_of(self._spec, self._shared.instance_name, requests, counts, found)
        return join_answers(answers, counts, rows if has_rows else 1)

    def _request(self, tensors: dict[str, Array], rows: RequestRows) -> ServedRequest:
        own = slice(rows.first, rows.end) if self._spec.has_batch_dimension else ...
        return ServedRequest(
            model_name=self._spec.name,
            model_version=self._spec.version,
            requested_output_names=rows.info.outputs or [output.name for output in self._spec.outputs],
            inputs=[Tensor(name, array[own]) for name, array in tensors.items()],
            request_id=rows.info.request_id,
            timeout=rows.info.timeout_us,
            parameters=rows.info.parameters,
            correlation_id=rows.info.sequence_id,
            flags=_flags(rows.info),
        )


def _flags(info: RequestInfo) -> int:
    start = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START if info.sequence_start else 0
    return start | (TRITONSERVER_REQUEST_FLAG_SEQUENCE_END if info.sequence_end else 0)
