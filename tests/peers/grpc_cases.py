"""How gRPC calls are written down, and what is seen of their answers."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from tests.peers.answers import PATIENCE_S, masked

Message = Any
_LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Call(NamedTuple):
    """A call of a method, or a stream of requests."""

    method: str
    message: Message
    metadata: tuple[tuple[str, str], ...] = ()


Cases = dict[str, Call | tuple[Call, ...]]


def parameter(value: object) -> Message:
    """A parameter of the value's type; a tuple of one number is an unsigned one."""
    match value:
        case bool():
            return pb.InferParameter(bool_param=value)
        case int():
            return pb.InferParameter(int64_param=value)
        case float():
            return pb.InferParameter(double_param=value)
        case str():
            return pb.InferParameter(string_param=value)
        case (int() as number,):
            return pb.InferParameter(uint64_param=number)
        case _:
            return pb.InferParameter()


def parameters(values: Mapping[str, object]) -> dict[str, Message]:
    """The parameters of a request or tensor."""
    return {name: parameter(value) for name, value in values.items()}


def tensor(
    datatype: str = "FP32",
    shape: tuple[int, ...] = (1, 2),
    name: str = "x",
    contents: Mapping[str, object] | None = None,
    **values: object,
) -> Message:
    """An input; `values` are its parameters."""
    return pb.ModelInferRequest.InferInputTensor(
        name=name, datatype=datatype, shape=shape, contents=contents, parameters=parameters(values)
    )


def output(name: str = "y", **values: object) -> Message:
    """An output that is asked for."""
    return pb.ModelInferRequest.InferRequestedOutputTensor(name=name, parameters=parameters(values))


def request(model: str, *inputs: Message, raw: tuple[bytes, ...] = (), **fields: Any) -> Message:
    """An infer request; of the fields, `parameters` are plain values."""
    fields["parameters"] = parameters(fields.get("parameters", {}))
    return pb.ModelInferRequest(model_name=model, inputs=inputs, raw_input_contents=raw, **fields)


def infer(model: str, *inputs: Message, raw: tuple[bytes, ...] = (), **fields: Any) -> Call:
    """A call of ModelInfer."""
    return Call("ModelInfer", request(model, *inputs, raw=raw, **fields))


def stream(*requests: Message, **metadata: str) -> Call:
    """A call of ModelStreamInfer, which sends all of these and then ends."""
    return Call("ModelStreamInfer", requests, tuple(metadata.items()))


class Client:
    """A connection to one of the servers."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=_LIMITS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def ask(self, call: Call) -> object:
        """The answer as data, or the answers of a stream; an error as its code and text."""
        answers: list[object] = []
        try:
            answers.extend(masked(_as_data(message)) for message in self._messages(call))
        except grpc.RpcError as error:
            answers.append({"code": error.code().name, "text": error.details()})
        return answers

    def _messages(self, call: Call) -> Iterator[Message]:
        method = getattr(self._stub, call.method)
        if call.method == "ModelStreamInfer":
            yield from method(iter(call.message), metadata=call.metadata, timeout=PATIENCE_S)
        else:
            yield method(call.message, metadata=call.metadata, timeout=PATIENCE_S)


def _as_data(message: Message) -> object:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def steps_of(case: Call | tuple[Call, ...]) -> tuple[Call, ...]:
    """The calls of a case; a call is a tuple too."""
    return (case,) if isinstance(case, Call) else case
