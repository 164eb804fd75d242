"""How many cores this process may use: the smallest of affinity and the control groups' quotas.

`os.cpu_count()` alone says 64 in a container that is allowed two; threads beyond the quota only get throttled.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override


class CpuBudget(NamedTuple):
    """What limits this process, in cores.

    Attributes:
        affinity: Cores that it is bound to.
        quota: The smallest quota of its control groups and those above them, or None.
    """

    affinity: int
    quota: float | None = None

    @property
    def cores(self) -> int:
        """Whole cores that the process may keep busy, at least 1; a quota of 2.5 cores gives 2."""
        return max(1, int(min(self.affinity, self.quota if self.quota is not None else self.affinity)))

    @override
    def __str__(self) -> str:
        """For a log line, e.g. ``2 cores (affinity 16, quota 2.5)``."""
        quota = "none" if self.quota is None else f"{self.quota:g}"
        return f"{_cores(self.cores)} (affinity {self.affinity}, quota {quota})"


def cpu_budget(root: Path = Path("/"), affinity: int | None = None) -> CpuBudget:
    """The limits of this process.

    Args:
        root: Directory that holds ``proc`` and ``sys``.
        affinity: Cores that the process is bound to; asked from the operating system if None.
    """
    return CpuBudget(_affinity() if affinity is None else affinity, min(_quotas(root), default=None))


def available_cores(root: Path = Path("/"), affinity: int | None = None) -> int:
    """Whole cores that this process may keep busy; see `cpu_budget`."""
    return cpu_budget(root, affinity).cores


def divide(cores: int, models: Sequence[str]) -> Mapping[str, int]:
    """Cores for each of the models that compute on the CPU: equal parts, the rest to the first ones, at least 1 each.

    With more models than cores they share cores, and take turns.

    Args:
        cores: Of the budget.
        models: Their names, each once.
    """
    return {model: max(1, cores // len(models) + (place < cores % len(models))) for place, model in enumerate(models)}


def explain_division(budget: CpuBudget, shares: Mapping[str, int]) -> str:
    """The arithmetic for the log, e.g. ``2 cores (affinity 2, quota none) / 1 model on the CPU = 2 for 'lite0'``."""
    models = "1 model" if len(shares) == 1 else f"{len(shares)} models"
    parts = ", ".join(f"{cores} for '{model}'" for model, cores in shares.items())
    shared = ", which take turns" if sum(shares.values()) > budget.cores else ""
    return f"{budget} / {models} on the CPU = {parts or 'nothing'}{shared}"


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[float]:
    """Limits in cores of the process's groups and all groups above them; every one of them holds."""
    mount = root / "sys/fs/cgroup"
    for controllers, path in _groups(root / "proc/self/cgroup"):
        # Version 2 lists no controllers and is mounted at the top; version 1 has a mount for each set of controllers,
        # and a link with the short name.
        read, top = (_v1_quota, mount / "cpu") if controllers else (_v2_quota, mount)
        for directory in _up_to(top, path):
            quota = read(directory)
            if quota is not None:
                yield quota


def _groups(membership: Path) -> Iterator[tuple[str, str]]:
    """(controllers, path) of the groups that may limit the CPU, from lines like ``4:cpu,cpuacct:/docker/1f``."""
    for line in (_read(membership) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            yield controllers, path


def _up_to(top: Path, path: str) -> Iterator[Path]:
    """The group's directory and those above it. In a container only `top` may exist, and is the group itself."""
    group = top / path.lstrip("/")
    yield group
    for directory in group.parents:
        if not directory.is_relative_to(top):
            return
        yield directory


def _v2_quota(directory: Path) -> float | None:
    quota_us, _, period_us = (_read(directory / "cpu.max") or "max").partition(" ")
    return None if quota_us.strip() == "max" else int(quota_us) / int(period_us)


def _v1_quota(directory: Path) -> float | None:
    quota_us = int(_read(directory / "cpu.cfs_quota_us") or -1)
    period_us = int(_read(directory / "cpu.cfs_period_us") or 0)
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _read(file: Path) -> str | None:
    try:
        return file.read_text()
    except OSError:  # no control groups here, or not readable: no limit is known
        return None
