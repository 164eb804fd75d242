import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from batching.core.errors import ShuttingDownError
from gateway.control_access import ControlAccess, GuardedControl
from gateway.v2.forwarding import HeaderForwarding
from gateway.v2.restricted import RestrictedFeatures
from gateway.v2.shared_memory import SharedMemory
from gateway.v2.surface_settings import SurfaceSettings
from models.errors import LoadFailedError
from tests.gateway.fake_control import FakeControl
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.grpc_v2.serving import Served, output, request, served, tensor
from tests.gateway.v2.segments import content_of, needs_shared_memory, segment

RAW = np.float32([1, 2]).tobytes()


async def status_of(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details() or ""


async def test_every_method_of_the_service_is_there() -> None:
    methods = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    unary = [method for method in methods if not method.client_streaming]

    async with served(FakeEngine()) as here:
        answers = await asyncio.gather(
            *(getattr(here.stub, method.name)(method.input_type._concrete_class()) for method in unary),  # noqa: SLF001
            return_exceptions=True,
        )

    texts = [answer.details() for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert len(unary) == 19
    assert "Method not found!" not in texts


async def test_a_health_check_that_is_no_message_is_refused() -> None:
    async with served(FakeEngine()) as here:
        check = here.channel.unary_unary("/grpc.health.v1.Health/Check")
        named = await check(b"\x0a\x05model")
        refused = await status_of(check(b"\xff\xff"))

    assert named == b"\x08\x01"
    assert refused == ("INTERNAL", "Unable to parse request")


async def test_health_is_told_by_both_services() -> None:
    engine = FakeEngine()
    async with served(engine) as here:
        check = here.channel.unary_unary("/grpc.health.v1.Health/Check")

        ready = [await here.stub.ServerReady(pb.ServerReadyRequest()), await check(b"\x0a\x01x")]
        engine.ready = False
        unready = [await here.stub.ServerReady(pb.ServerReadyRequest()), await check(b"")]
        live = await here.stub.ServerLive(pb.ServerLiveRequest())

    assert [ready[0].ready, ready[1]] == [True, b"\x08\x01"]
    assert [unready[0].ready, unready[1], live.live] == [False, b"\x08\x02", True]


async def test_a_server_that_stops_says_so() -> None:
    engine = FakeEngine()
    engine.stopping = True
    async with served(engine) as here:
        found = await status_of(here.stub.ServerReady(pb.ServerReadyRequest()))

    assert found == ("UNAVAILABLE", "Server exiting")


async def test_metadata_configuration_and_statistics_say_what_http_says() -> None:
    async with served(FakeEngine()) as here:
        server = await here.stub.ServerMetadata(pb.ServerMetadataRequest())
        model = await here.stub.ModelMetadata(pb.ModelMetadataRequest(name="simple"))
        config = (await here.stub.ModelConfig(pb.ModelConfigRequest(name="simple", version="1"))).config
        await here.stub.ModelInfer(request())
        counters = await here.stub.ModelStatistics(pb.ModelStatisticsRequest(name="ident_fp32"))
        everything = await here.stub.ModelStatistics(pb.ModelStatisticsRequest())

    assert (server.name, server.version, "statistics" in server.extensions) == ("shoal", "1.2.3", True)
    assert [(each.name, each.datatype, list(each.shape)) for each in model.inputs] == [
        ("INPUT0", "INT32", [-1, 16]),
        ("INPUT1", "INT32", [-1, 16]),
    ]
    assert (list(model.versions), config.max_batch_size, len(config.input)) == (["1"], 8, 2)
    assert [each.inference_stats.success.count for each in counters.model_stats] == [1]
    assert len(everything.model_stats) > 10


VERSIONS = [
    ("9", "NOT_FOUND", "Request for unknown model: 'simple' version 9 is not found"),
    ("-1", "INVALID_ARGUMENT", "invalid model version specified '-1' , version should be an integral value > 0"),
    *(
        (text, "INVALID_ARGUMENT", f"failed to get model version from specified version string '{text}' (details: "
         "stol), version should be an integral value > 0")
        for text in ("x", "9" * 19, "9" * 30, "³")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("version", "code", "text"), VERSIONS)
async def test_a_version_that_is_none_is_refused_by_all_methods(version: str, code: str, text: str) -> None:
    async with served(FakeEngine()) as here:
        found = [
            await status_of(here.stub.ModelMetadata(pb.ModelMetadataRequest(name="simple", version=version))),
            await status_of(here.stub.ModelReady(pb.ModelReadyRequest(name="simple", version=version))),
            await status_of(here.stub.ModelInfer(request(model="simple", model_version=version))),
        ]

    assert found == [(code, text)] * 3


@pytest.mark.parametrize("version", ["", "1", "01", "+1", " 1", "1.0", "1x", "stable"])
async def test_a_version_is_read_as_triton_reads_it_or_a_label(version: str) -> None:
    async with served(FakeEngine()) as here:
        answer = await here.stub.ModelReady(pb.ModelReadyRequest(name="simple", version=version))

    assert answer.ready


async def test_outputs_come_raw_with_types_shapes_and_the_id() -> None:
    inputs = [tensor(f"INPUT{i}", "INT32", (1, 16), contents={"int_contents": [i + 1] * 16}) for i in (0, 1)]
    async with served(FakeEngine()) as here:
        answer = await here.stub.ModelInfer(request(*inputs, model="simple", id="a-7"))

    assert (answer.model_name, answer.model_version, answer.id, dict(answer.parameters)) == ("simple", "1", "a-7", {})
    assert [(each.name, each.datatype, list(each.shape)) for each in answer.outputs] == [
        ("OUTPUT0", "INT32", [1, 16]),
        ("OUTPUT1", "INT32", [1, 16]),
    ]
    assert [np.frombuffer(raw, np.int32)[0] for raw in answer.raw_output_contents] == [3, -1]


async def test_classes_come_as_strings() -> None:
    scores = np.float32([[0.1, 0.7, 0.2, 0.0]])
    async with served(FakeEngine()) as here:
        answer = await here.stub.ModelInfer(
            request(tensor(shape=(1, 4)), raw=[scores.tobytes()], model="cls", outputs=[output(classification=2)])
        )

    assert (answer.outputs[0].datatype, list(answer.outputs[0].shape)) == ("BYTES", [1, 2])
    assert answer.raw_output_contents[0] == b"\x0e\0\0\0" + b"0.700000:1:dog" + b"\x0a\0\0\0" + b"0.200000:2"


@pytest.mark.parametrize("size", [0, 127, 128, 40_000, 2_000_000])
async def test_strings_of_all_sizes_go_there_and_back(size: int) -> None:
    text = b"x" * size
    async with served(FakeEngine()) as here:
        answer = await here.stub.ModelInfer(
            request(tensor(datatype="BYTES", shape=(1, 1), contents={"bytes_contents": [text]}), model="ident_str")
        )

    assert answer.raw_output_contents[0] == size.to_bytes(4, "little") + text


async def test_errors_have_the_codes_and_texts_of_triton() -> None:
    engine = FakeEngine({"scalar": ShuttingDownError(), "cls": ZeroDivisionError()})
    async with served(engine) as here:
        found = [
            await status_of(here.stub.ModelInfer(request(model="nothing"))),
            await status_of(here.stub.ModelInfer(request(tensor(), raw=[b"1"]))),
            await status_of(here.stub.ModelInfer(request(tensor(shape=()), raw=[b"1234"], model="scalar"))),
            await status_of(here.stub.ModelInfer(request(tensor(shape=(1, 4)), raw=[RAW * 2], model="cls"))),
            await status_of(here.stub.ModelStatistics(pb.ModelStatisticsRequest(name="nothing"))),
            await status_of(here.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\xff")),
        ]

    assert [code for code, _ in found] == [
        "NOT_FOUND", "INVALID_ARGUMENT", "UNAVAILABLE", "INTERNAL", "INVALID_ARGUMENT", "INTERNAL",
    ]  # fmt: skip
    assert [text for _, text in found][3:] == [
        "internal error",
        "requested model 'nothing' is not available",
        "Unable to parse request",
    ]


async def left(engine: FakeEngine) -> str:
    """What became of the request of ``hold`` in the engine."""
    async with asyncio.timeout(10):
        while True:
            event = await asyncio.to_thread(engine.happened.get)
            if event != "entered":
                return event


async def test_a_caller_that_cancels_withdraws_its_request() -> None:
    engine = FakeEngine()
    async with served(engine) as here:
        call = here.stub.ModelInfer(request(model="hold"))
        await engine.hold_entered.wait()
        call.cancel()

        assert await left(engine) == "cancelled"


async def test_a_deadline_that_passes_withdraws_the_request() -> None:
    engine = FakeEngine()
    async with served(engine) as here:
        code, _ = await status_of(here.stub.ModelInfer(request(model="hold"), timeout=0.2))

        assert (code, await left(engine)) == ("DEADLINE_EXCEEDED", "cancelled")


async def test_models_are_listed_loaded_and_unloaded() -> None:
    control = FakeControl()
    text = pb.ModelRepositoryParameter(string_param="{}")
    yes = pb.ModelRepositoryParameter(bool_param=True)
    async with served(FakeEngine(), GuardedControl(control, ControlAccess(mode="explicit"))) as here:
        index = await here.stub.RepositoryIndex(pb.RepositoryIndexRequest())
        ready = await here.stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True))
        await here.stub.RepositoryModelLoad(
            pb.RepositoryModelLoadRequest(model_name="echo", parameters={"config": text})
        )
        await here.stub.RepositoryModelUnload(
            pb.RepositoryModelUnloadRequest(model_name="echo", parameters={"unload_dependents": yes})
        )
        await here.stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="../x"))

    assert [(each.name, each.version, each.state, each.reason) for each in index.models] == [
        ("asleep", "", "", ""),
        ("echo", "1", "UNAVAILABLE", "unloaded"),
        ("echo", "2", "READY", ""),
    ]
    assert [each.version for each in ready.models] == ["2"]
    assert control.calls == [("load", "echo", "{}"), ("unload", "echo", True)]


async def load(here: Served, model: str = "echo", repository: str = "", metadata: Any = (), **values: Any) -> Any:
    made = {name: pb.ModelRepositoryParameter(**{kind: value}) for name, (kind, value) in values.items()}
    message = pb.RepositoryModelLoadRequest(repository_name=repository, model_name=model, parameters=made)
    return await status_of(here.stub.RepositoryModelLoad(message, metadata=metadata))


async def test_loads_that_are_not_possible_are_refused_as_triton_does() -> None:
    control = FakeControl()
    control.error = LoadFailedError("echo", "version 1 is at UNAVAILABLE state: no\n")
    async with served(FakeEngine(), GuardedControl(control, ControlAccess(mode="explicit"))) as here:
        found = [
            await load(here, repository="x"),
            await load(here, "../x"),
            await load(here, x=("string_param", "y")),
            await load(here, config=("bool_param", True)),
            await load(here, **{"file:1/x": ("string_param", "y")}),
            await load(here),
        ]

    assert found == [
        ("UNIMPLEMENTED", "'repository_name' specification is not supported"),
        ("INTERNAL", "failed to load '../x', failed to poll from model repository"),
        ("INVALID_ARGUMENT", "unrecognized load parameter 'x'."),
        ("INVALID_ARGUMENT", "invalid value type for load parameter 'config', expected string_param."),
        ("INVALID_ARGUMENT", "invalid value type for load parameter 'file:1/x', expected bytes_param."),
        ("INVALID_ARGUMENT", "load failed for model 'echo': version 1 is at UNAVAILABLE state: no\n"),
    ]


async def test_loading_needs_the_mode_the_token_and_no_page() -> None:
    token = b"0123456789abcdef"
    control = FakeControl()
    async with served(FakeEngine()) as here:
        without_control = await load(here)
    async with served(FakeEngine(), GuardedControl(control, ControlAccess(mode="explicit", token=token))) as here:
        found = [
            await load(here),
            await load(here, metadata=(("authorization", "Bearer wrong"),)),
            await load(here, metadata=(("authorization", f"Bearer {token.decode()}"), ("origin", "http://x"))),
        ]
        bearer = (("authorization", f"Bearer {token.decode()}"),)
        await here.stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="echo"), metadata=bearer)

    assert without_control[0] == "UNAVAILABLE"
    assert [code for code, _ in found] == ["UNAUTHENTICATED", "UNAUTHENTICATED", "PERMISSION_DENIED"]
    assert control.calls == [("load", "echo", None)]


@needs_shared_memory
async def test_tensors_are_read_from_and_written_to_shared_memory() -> None:
    async with served(FakeEngine(), memory=SharedMemory(is_enabled=True)) as here:
        with segment(RAW + bytes(8)) as path:
            await here.stub.SystemSharedMemoryRegister(
                pb.SystemSharedMemoryRegisterRequest(name="r", key=path.name, byte_size=16)
            )
            status = await here.stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest())
            answer = await here.stub.ModelInfer(
                request(
                    tensor(shared_memory_region="r", shared_memory_byte_size=8),
                    outputs=[output(shared_memory_region="r", shared_memory_offset=8, shared_memory_byte_size=8)],
                )
            )
            small = await status_of(
                here.stub.ModelInfer(request(outputs=[output(shared_memory_region="r", shared_memory_byte_size=4)]))
            )
            await here.stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest())
            content = content_of(path)

    assert [(region.key, region.byte_size) for region in status.regions.values()] == [(path.name, 16)]
    assert (list(answer.raw_output_contents), list(answer.outputs[0].shape)) == ([b""], [1, 2])
    assert content == RAW + RAW
    assert small == (
        "INTERNAL",
        "shared memory size specified with the request for output 'OUT' (4 bytes) should be at least 8 bytes to hold "
        "the results",
    )


async def test_shared_memory_is_off_by_default() -> None:
    async with served(FakeEngine()) as here:
        found = [
            await status_of(here.stub.SystemSharedMemoryRegister(pb.SystemSharedMemoryRegisterRequest(name="r"))),
            await status_of(here.stub.CudaSharedMemoryRegister(pb.CudaSharedMemoryRegisterRequest(name="r"))),
            await status_of(here.stub.CudaSharedMemoryStatus(pb.CudaSharedMemoryStatusRequest(name="r"))),
        ]

    assert [code for code, _ in found] == ["UNIMPLEMENTED", "UNIMPLEMENTED", "NOT_FOUND"]


async def test_the_memory_of_gpus_is_refused_as_without_gpus() -> None:
    async with served(FakeEngine(), memory=SharedMemory(is_enabled=True)) as here:
        await here.stub.CudaSharedMemoryUnregister(pb.CudaSharedMemoryUnregisterRequest())
        found = await status_of(here.stub.CudaSharedMemoryRegister(pb.CudaSharedMemoryRegisterRequest(name="r")))

    assert found == ("INVALID_ARGUMENT", "failed to register shared memory region: invalid args")


async def test_trace_settings_are_read_and_changed() -> None:
    value = pb.TraceSettingRequest.SettingValue
    async with served(FakeEngine()) as here:

        async def set_trace(model: str = "", **settings: list[str]) -> Any:
            changes = {name: value(value=texts) for name, texts in settings.items()}
            return await here.stub.TraceSetting(pb.TraceSettingRequest(model_name=model, settings=changes))

        changed = await set_trace("simple", trace_rate=["5"])
        cleared = await set_trace("simple", trace_rate=[])
        found = [
            await status_of(set_trace(trace_rate=["1", "2"])),
            await status_of(set_trace(trace_rate=["x"])),
            await status_of(set_trace(trace_file=["x"])),
            await status_of(set_trace("nothing")),
        ]

    assert [list(answer.settings["trace_rate"].value) for answer in (changed, cleared)] == [["5"], ["1000"]]
    assert found == [
        ("INVALID_ARGUMENT", "expect only 1 value for 'trace_rate'"),
        ("INVALID_ARGUMENT", "Unable to parse 'trace_rate', got: x"),
        ("UNIMPLEMENTED", "trace file location can not be updated through network protocol"),
        ("INVALID_ARGUMENT", "Request for unknown model : nothing"),
    ]


async def test_log_settings_are_read_and_changed() -> None:
    value = pb.LogSettingsRequest.SettingValue
    async with served(FakeEngine()) as here:

        async def set_log(**settings: Any) -> Any:
            return await here.stub.LogSettings(pb.LogSettingsRequest(settings=settings))

        changed = await set_log(log_verbose_level=value(uint32_param=2), log_info=value(bool_param=False))
        found = [
            await status_of(set_log(log_info=value(uint32_param=1))),
            await status_of(set_log(log_verbose_level=value(bool_param=True))),
            await status_of(set_log(log_format=value(string_param="x"))),
            await status_of(set_log(log_file=value(string_param="x"))),
        ]

    settings = changed.settings
    assert (settings["log_verbose_level"].uint32_param, settings["log_info"].bool_param) == (2, False)
    assert settings["log_format"].string_param == "default"
    assert found == [
        ("INVALID_ARGUMENT", "expect boolean for 'log_info'"),
        ("INVALID_ARGUMENT", "expect int32 for 'log_verbose_level'"),
        ("INVALID_ARGUMENT", "invalid argument for log_format, got: x"),
        ("UNIMPLEMENTED", "log file location can not be updated through network protocol"),
    ]


async def test_restricted_methods_need_their_header() -> None:
    surface = SurfaceSettings(restricted=RestrictedFeatures.parse(["inference,health:key=secret"]))
    header = "triton-grpc-protocol-key"
    async with served(FakeEngine(), surface=surface) as here:
        refused = [
            await status_of(here.stub.ModelInfer(request())),
            await status_of(here.stub.ServerLive(pb.ServerLiveRequest(), metadata=((header, "wrong"),))),
            await status_of(here.stub.ModelStreamInfer(iter([request()])).read()),
        ]
        taken = await here.stub.ModelInfer(request(), metadata=((header, "secret"),))
        await here.stub.ServerMetadata(pb.ServerMetadataRequest())

    assert refused == [("UNAVAILABLE", f"This protocol is restricted, expecting header '{header}'")] * 3
    assert taken.model_name == "ident_fp32"


async def test_chosen_metadata_are_parameters_of_the_request() -> None:
    engine = FakeEngine()
    surface = SurfaceSettings(forwarding=HeaderForwarding.parse("x-.*"))
    async with served(engine, surface=surface) as here:
        await here.stub.ModelInfer(request(values={"a": 1}), metadata=(("x-user", "me"), ("y-user", "you")))
        reserved = await status_of(here.stub.ModelInfer(request(), metadata=(("x-raw-bin", b"\xff"),)))

    assert engine.requests[0].parameters == {"a": 1, "x-user": "me"}
    assert reserved[0] == "INVALID_ARGUMENT"
