"""From instance groups and devices to sites."""

from dataclasses import replace
from pathlib import Path

import pytest

from backends.errors import LoadError
from backends.placing import Machine, Site, place, warn
from backends.ports import Placement
from backends.registry import Hosting
from models.spec import DeviceKind, ExecutionSpec, Host, InstanceGroup, ModelSpec
from tests.backends.builders import model

NO_GPU: dict[int, str] = {}
TWO_GPUS = {0: "GPU-a", 1: "GPU-b"}


def machine(gpus: dict[int, str], *, cores: int = 4, allow_cpu: bool = False) -> Machine:
    return Machine(gpus, Placement(cores=cores, cache_dir=Path("cache")), allow_cpu)


def group(kind: DeviceKind, count: int = 1, gpus: tuple[int, ...] = (), name: str = "g") -> InstanceGroup:
    return InstanceGroup(name=name, kind=kind, count=count, gpus=gpus)


def spec(*groups: InstanceGroup, backend: str = "onnxruntime", host: Host = Host.AUTO) -> ModelSpec:
    return replace(model(groups=groups, backend=backend), execution=ExecutionSpec(host=host))


def outline(sites: list[Site]) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(site.hosting.name, site.process, site.placement.device, site.names) for site in sites]


@pytest.mark.parametrize(
    ("wanted", "gpus", "sites"),
    [
        pytest.param(group(DeviceKind.CPU, 2), TWO_GPUS, [("THREAD", "", "cpu", ("g_0", "g_1"))], id="CPU"),
        pytest.param(group(DeviceKind.AUTO, 2), NO_GPU, [("THREAD", "", "cpu", ("g_0", "g_1"))], id="auto without GPU"),
        pytest.param(
            group(DeviceKind.AUTO),
            TWO_GPUS,
            [("DEVICE_PROCESS", "gpu0", "gpu0", ("g_gpu0_0",)), ("DEVICE_PROCESS", "gpu1", "gpu1", ("g_gpu1_0",))],
            id="auto with GPUs",
        ),
        pytest.param(
            group(DeviceKind.GPU, 2, (1,)), TWO_GPUS, [("DEVICE_PROCESS", "gpu1", "gpu1", ("g_0", "g_1"))], id="one GPU"
        ),
    ],
)
def test_a_group_goes_where_its_kind_says(wanted: InstanceGroup, gpus: dict[int, str], sites: list[object]):
    assert outline(place(spec(wanted), machine(gpus))) == sites


def test_models_on_one_gpu_share_its_process_and_on_the_cpu_they_do_not():
    (on_gpu,) = place(spec(group(DeviceKind.GPU), backend="pytorch"), machine({0: "GPU-a"}))
    (on_cpu,) = place(spec(group(DeviceKind.CPU), backend="pytorch"), machine(NO_GPU))

    assert on_gpu.process == "gpu0"
    assert on_cpu.process == "m/1/cpu"


def test_python_code_gets_a_process_for_each_instance_and_its_share_of_the_cores():
    sites = place(spec(group(DeviceKind.CPU, 2), backend="python"), machine(NO_GPU, cores=4))

    assert [(site.hosting, site.process) for site in sites] == [
        (Hosting.INSTANCE_PROCESS, "m/1/g_0"),
        (Hosting.INSTANCE_PROCESS, "m/1/g_1"),
    ]
    assert [(site.placement.instances, site.placement.cores) for site in sites] == [(1, 2), (1, 2)]
    assert [site.placement.names for site in sites] == [("g_0",), ("g_1",)]


def test_a_model_can_be_moved_out_of_this_process_and_one_that_may_crash_not_into_it():
    (site,) = place(spec(group(DeviceKind.CPU, 2), host=Host.PROCESS), machine(NO_GPU))

    assert site.hosting is Hosting.DEVICE_PROCESS
    with pytest.raises(LoadError, match=r'\[execution\] host is "thread", expected "process" or nothing'):
        place(spec(group(DeviceKind.CPU), backend="python", host=Host.THREAD), machine(NO_GPU))


def test_groups_on_different_devices_are_different_sites():
    groups = [group(DeviceKind.GPU, 1, (0,), "fast"), group(DeviceKind.CPU, 3, (), "slow")]

    sites = place(spec(*groups), machine(TWO_GPUS))

    assert [site.names for site in sites] == [("fast_0",), ("slow_0", "slow_1", "slow_2")]
    assert [site.placement.names for site in sites] == [site.names for site in sites]
    assert [site.placement.instances for site in sites] == [1, 3]


@pytest.mark.parametrize(
    ("wanted", "gpus", "sentence"),
    [
        pytest.param(
            group(DeviceKind.GPU), NO_GPU, "asks for KIND_GPU, this machine has no GPU.*--allow-cpu", id="none"
        ),
        pytest.param(
            group(DeviceKind.GPU, 1, (0, 7)), TWO_GPUS, "asks for GPU 0, 7, this machine has GPU 0, 1", id="7"
        ),
        pytest.param(group(DeviceKind.AUTO, 1, (5,)), TWO_GPUS, "asks for GPU 5, this machine has GPU 0, 1", id="auto"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused_with_what_there_is(
    wanted: InstanceGroup, gpus: dict[int, str], sentence: str
):
    with pytest.raises(LoadError, match=f"model 'm' version 1: instance group 'g' {sentence}"):
        place(spec(wanted), machine(gpus))


def test_a_group_on_a_gpu_runs_on_the_cpu_when_allowed_and_says_so(caplog: pytest.LogCaptureFixture):
    wanted = spec(group(DeviceKind.GPU, 2, (0, 1)))

    (site,) = place(wanted, machine(NO_GPU, allow_cpu=True))
    warn(wanted, [site])

    assert (site.placement.device, site.names) == ("cpu", ("g_0", "g_1"))
    assert "instance group 'g' asks for KIND_GPU and runs on the CPU" in caplog.text


def test_a_missing_gpu_is_not_replaced_by_the_cpu_where_there_are_others():
    with pytest.raises(LoadError, match="asks for GPU 7"):
        place(spec(group(DeviceKind.GPU, 1, (7,))), machine(TWO_GPUS, allow_cpu=True))


def test_limits_that_cannot_be_kept_in_a_thread_are_named(caplog: pytest.LogCaptureFixture):
    limited = replace(spec(group(DeviceKind.CPU)), execution=ExecutionSpec(step_timeout_s=1, max_restarts=2))

    apart = replace(limited, execution=replace(limited.execution, host=Host.PROCESS))

    for each in (limited, apart):
        warn(each, place(each, machine(NO_GPU)))

    (record,) = caplog.records
    assert "[execution] step_timeout_s, max_restarts has no effect" in record.message


def test_a_count_that_nobody_gave_is_one_on_each_gpu():
    by_default = InstanceGroup(name="g", kind=DeviceKind.AUTO, count=2, is_default_count=True)

    sites = place(spec(by_default), machine(TWO_GPUS))

    assert [site.placement.instances for site in sites] == [1, 1]


def test_two_groups_of_one_name_are_refused():
    groups = [group(DeviceKind.CPU), group(DeviceKind.CPU)]

    with pytest.raises(LoadError, match="two instances are named 'g_0'"):
        place(spec(*groups), machine(NO_GPU))
