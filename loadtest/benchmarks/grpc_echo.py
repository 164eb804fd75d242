"""The least that a gRPC server of the v2 service can be in Python: it answers with the tensors that it is sent."""

import asyncio
import json
import sys

import grpc
import uvloop
from tritonclient.grpc import service_pb2, service_pb2_grpc


class Echo(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # tritonclient has no types
    """Only ModelInfer."""

    async def ModelInfer(self, request: service_pb2.ModelInferRequest, _: object) -> service_pb2.ModelInferResponse:  # noqa: N802
        """The request's tensors as outputs."""
        answer = service_pb2.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
        for tensor in request.inputs:
            answer.outputs.add(name="OUTPUT0", datatype=tensor.datatype, shape=tensor.shape)
        answer.raw_output_contents.extend(request.raw_input_contents)
        return answer


async def main() -> None:
    """Serve until terminated; the port is in the first line of the standard error."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Echo(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"url": f"http://127.0.0.1:{port}"}), file=sys.stderr, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
