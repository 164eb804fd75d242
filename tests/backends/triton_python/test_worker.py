"""Triton python models where they really run: in worker processes, with what crosses to them and back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Placement
from backends.workers import WorkerHouse
from batching.clock import MonotonicClock
from batching.ports import Instance
from models.inference import Tensors
from models.request_rows import RequestInfo, attach
from models.spec import BatchingSpec, ModelSpec
from models.tensors import DataType
from tests.backends.builders import tensor
from tests.backends.triton_python.builders import HEAD, body, request, told, triton_model

pytestmark = pytest.mark.slow  # starts processes


@asynccontextmanager
async def running(spec: ModelSpec) -> AsyncIterator[Instance[Tensors, Tensors]]:
    clock = MonotonicClock()
    async with WorkerHouse(clock) as workers:
        pool = InstancePool(spec, clock=clock, machine=Machine(gpus={}, defaults=Placement()), workers=workers)
        await pool.start()
        try:
            yield pool.instances[0]
        finally:
            await pool.aclose()


async def test_requests_of_one_batch_keep_their_ids_and_get_their_own_answers(tmp_path: Path) -> None:
    code = body("""
        def answer(request, x):
            if request.request_id() == "bad":
                return pb_utils.InferenceResponse(error=pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND))
            return respond(np.tile(x * 10 + len(requests), int(request.request_id())))
        return [answer(request, x) for request, x in zip(requests, xs)]
    """)
    spec = triton_model(tmp_path, code, outputs=[tensor("y", dims=(-1,))])
    spec = replace(spec, batching=BatchingSpec(allowed_rows=(8,)))
    async with running(spec) as instance:
        result = await instance.execute([request(1, id="1"), request(2, id="bad"), request(3, 4, id="2")])
    assert [told(each) for each in result.results] == [
        [[13, 13]],
        "CodeNotFoundError: no",
        [[33] * 4, [43] * 4],
    ]


ADD_SUB = f"""{HEAD}
import json
import models  # a package beside the model, with a name that the server has, too

class TritonPythonModel:
    def initialize(self, args):
        self.model_config = model_config = json.loads(args["model_config"])
        output0 = pb_utils.get_output_config_by_name(model_config, "OUTPUT0")
        self.output0_dtype = pb_utils.triton_string_to_numpy(output0["data_type"])

    def execute(self, requests):
        responses = []
        for request in requests:
            in_0 = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            in_1 = pb_utils.get_input_tensor_by_name(request, "INPUT1")
            out_0, out_1 = (in_0.as_numpy() + in_1.as_numpy(), in_0.as_numpy() - in_1.as_numpy())
            out_tensor_0 = pb_utils.Tensor("OUTPUT0", out_0.astype(self.output0_dtype))
            out_tensor_1 = pb_utils.Tensor("OUTPUT1", out_1)
            responses.append(pb_utils.InferenceResponse(output_tensors=[out_tensor_0, out_tensor_1]))
        return responses

    def finalize(self):
        print("Cleaning up...")
"""


async def test_the_shape_of_the_public_example_add_sub(tmp_path: Path) -> None:
    tensors = {name: tensor(name, DataType.FP32, (4,)) for name in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")}
    config: dict[str, object] = {"output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32"}]}
    spec = triton_model(
        tmp_path,
        ADD_SUB,
        inputs=[tensors["INPUT0"], tensors["INPUT1"]],
        outputs=[tensors["OUTPUT0"], tensors["OUTPUT1"]],
        max_batch_rows=0,
        config=config,
    )
    (spec.file.parent / "models").mkdir()
    (spec.file.parent / "models" / "__init__.py").touch()
    inputs = {"INPUT0": np.arange(4, dtype=np.float32), "INPUT1": np.ones(4, np.float32)}
    async with running(spec) as instance:
        result = await instance.execute([attach(inputs, 1)])
    ((sums, differences),) = [list(each.values()) for each in result.results]  # type: ignore[union-attr]
    assert (sums.tolist(), differences.tolist()) == ([1, 2, 3, 4], [-1, 0, 1, 2])


DECODES = f"""{HEAD}
import io
from PIL import Image

class TritonPythonModel:
    def execute(self, requests):
        def decode(data):
            image = Image.open(io.BytesIO(data)).convert("RGB").resize((4, 4))
            return np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255
        def answer(request):
            files = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
            try:
                pixels = np.stack([decode(file) for file in files.reshape(-1)])
            except OSError as error:
                error = pb_utils.TritonError(f"no image: {{error}}", pb_utils.TritonError.INVALID_ARG)
                return pb_utils.InferenceResponse(output_tensors=[], error=error)
            return pb_utils.InferenceResponse([pb_utils.Tensor("pixels", pixels)])
        return [answer(request) for request in requests]
"""


async def test_the_shape_of_a_preprocessing_step_from_encoded_images_to_numbers(tmp_path: Path) -> None:
    spec = triton_model(
        tmp_path,
        DECODES,
        inputs=[tensor("image", DataType.BYTES, (1,))],
        outputs=[tensor("pixels", DataType.FP32, (3, 4, 4))],
    )
    buffer = BytesIO()
    Image.new("RGB", (8, 8), (255, 0, 51)).save(buffer, "PNG")
    files = [[buffer.getvalue()], [b"no image"]]
    payloads = [attach({"image": np.array([file], object)}, 1, RequestInfo()) for file in files]
    async with running(spec) as instance:
        result = await instance.execute(payloads)
    good, bad = result.results
    assert isinstance(good, dict)
    np.testing.assert_allclose(good["pixels"][0, :, 0, 0], [1, 0, 0.2], rtol=1e-6)
    assert repr(bad).startswith("CodeInvalidArgumentError('no image: cannot identify image file")
