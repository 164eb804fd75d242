"""Where the instances of a model version go: from instance groups and the machine's devices to sites."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from backends.errors import LoadError
from backends.ports import Placement
from backends.registry import Hosting, find_backend, hosting
from models.spec import DeviceKind, ExecutionSpec, InstanceGroup, ModelSpec

logger = logging.getLogger(__name__)

_LIMITS = ("step_timeout_s", "load_timeout_s", "max_restarts")


class Site(NamedTuple):
    """Instances that are made together.

    Attributes:
        hosting: Who shares a process.
        process: Key of the worker process; versions with the same key share it. Empty for threads.
        placement: What the factory is told.
        names: Of the instances.
    """

    hosting: Hosting
    process: str
    placement: Placement
    names: tuple[str, ...]


class Machine(NamedTuple):
    """What instances can be placed on.

    Attributes:
        gpus: By ordinal of a GPU, the value of CUDA_VISIBLE_DEVICES that shows it alone.
        defaults: Cores for the version's instances on the CPU, and what else every placement has.
        allow_cpu: Run instance groups of KIND_GPU on the CPU where there is no GPU, instead of refusing them.
        incarnation: How often the version has been loaded, with this time: a reloaded one gets fresh processes, while
            the one before still serves from its own.
    """

    gpus: Mapping[int, str]
    defaults: Placement
    allow_cpu: bool = False
    incarnation: int = 1


class _Seat(NamedTuple):
    name: str
    device: str


def place(spec: ModelSpec, machine: Machine) -> Sequence[Site]:
    """All sites of a version, in the order of its groups.

    Raises:
        LoadError: A group asks for a GPU that is not there, or for one that the backend cannot use.
    """
    seats = [seat for group in spec.instance_groups for seat in _seats(spec, group, machine)]
    names = Counter(seat.name for seat in seats)
    if twice := [name for name, count in names.items() if count > 1]:
        raise LoadError(f"{_where(spec)}: two instances are named '{twice[0]}', expected groups of different names")
    home = f"{spec.name}/{spec.version}" + (f"#{machine.incarnation}" if machine.incarnation > 1 else "")
    return list(_sites(spec, seats, machine.defaults, home))


def warn(spec: ModelSpec, sites: Sequence[Site]) -> None:
    """Log what the configuration asks for and does not get."""
    on_cpu = [name for site in sites if site.placement.device == "cpu" for name in site.names]
    for group in spec.instance_groups:
        if group.kind is DeviceKind.GPU and any(name.startswith(f"{group.name}_") for name in on_cpu):
            logger.warning("%s: instance group '%s' asks for KIND_GPU and runs on the CPU", _where(spec), group.name)
    devices = {site.placement.device.rstrip("0123456789") for site in sites}
    for kind, accelerators in (("gpu", spec.execution.gpu_accelerators), ("cpu", spec.execution.cpu_accelerators)):
        if accelerators and kind not in devices:
            names = ", ".join(f"'{accelerator.name}'" for accelerator in accelerators)
            text = "%s: %s_execution_accelerator %s has no effect: no instance is on a %s"
            logger.warning(text, _where(spec), kind, names, kind.upper())
    _warn_of_limits(spec, sites)


def _seats(spec: ModelSpec, group: InstanceGroup, machine: Machine) -> Iterator[_Seat]:
    devices = _devices(spec, group, machine)
    for device in devices:
        # Several instances are of use where a batch occupies one core, not a whole GPU.
        count = 1 if group.is_default_count and device != "cpu" else group.count
        for index in range(count):
            infix = f"_{device}" if len(devices) > 1 else ""
            yield _Seat(f"{group.name}{infix}_{index}", device)


def _devices(spec: ModelSpec, group: InstanceGroup, machine: Machine) -> Sequence[str]:
    usable = tuple(machine.gpus) if find_backend(spec).on_gpu is not None else ()
    if spec.backend == "fake" and group.kind is DeviceKind.GPU:
        return [f"gpu{ordinal}" for ordinal in group.gpus or (0,)]  # it makes its devices up
    wants_gpu = group.kind is DeviceKind.GPU or (group.kind is DeviceKind.AUTO and usable and spec.backend != "fake")
    if not wants_gpu:
        return ["cpu"]
    where = f"{_where(spec)}: instance group '{group.name}'"
    missing = [ordinal for ordinal in group.gpus if ordinal not in usable]
    if usable and not missing:
        return [f"gpu{ordinal}" for ordinal in group.gpus or usable]
    if machine.allow_cpu and not usable:
        return ["cpu"]
    raise LoadError(f"{where} asks for {_wanted(group)}, {_found(spec, machine)}")


def _wanted(group: InstanceGroup) -> str:
    return f"GPU {', '.join(map(str, group.gpus))}" if group.gpus else "KIND_GPU"


def _found(spec: ModelSpec, machine: Machine) -> str:
    if find_backend(spec).on_gpu is None:
        return f"backend '{spec.backend}' runs on the CPU only; set its kind to KIND_CPU, or start with --allow-cpu"
    if not machine.gpus:
        return "this machine has no GPU; set its kind to KIND_CPU, or start with --allow-cpu"
    return f"this machine has GPU {', '.join(map(str, machine.gpus))}"


def _sites(spec: ModelSpec, seats: Sequence[_Seat], defaults: Placement, home: str) -> Iterator[Site]:
    on_cpu = sum(seat.device == "cpu" for seat in seats)
    for device in dict.fromkeys(seat.device for seat in seats):
        names = tuple(seat.name for seat in seats if seat.device == device)
        host = hosting(spec, is_gpu=device != "cpu")
        placement = replace(defaults, device=device, instances=len(names), names=names)
        if host is not Hosting.INSTANCE_PROCESS:
            process = _shared_process(home, device) if host is Hosting.DEVICE_PROCESS else ""
            yield Site(host, process, placement, names)
            continue
        cores = max(1, defaults.cores // on_cpu) if device == "cpu" else defaults.cores
        for name in names:
            alone = replace(placement, instances=1, cores=cores, names=(name,))
            yield Site(host, f"{home}/{name}", alone, (name,))


def _shared_process(home: str, device: str) -> str:
    """A GPU has one process, because each would need a context of its own; on the CPU models are kept apart."""
    return f"{home}/cpu" if device == "cpu" else device


def _warn_of_limits(spec: ModelSpec, sites: Sequence[Site]) -> None:
    """What would end a worker cannot end a thread."""
    default = ExecutionSpec()
    given = [name for name in _LIMITS if getattr(spec.execution, name) != getattr(default, name)]
    if given and any(site.hosting is Hosting.THREAD for site in sites):
        logger.warning(
            '%s: [execution] %s has no effect on instances in the server\'s process; host = "process" moves them out',
            _where(spec),
            ", ".join(given),
        )


def _where(spec: ModelSpec) -> str:
    return f"model '{spec.name}' version {spec.version}"
