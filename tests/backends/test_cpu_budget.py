"""How many cores there are, read from a made-up file system."""

from pathlib import Path

import pytest

from backends.cpu_budget import available_cores

V1 = {"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        pytest.param({}, 8, id="no control groups"),
        pytest.param({"proc/self/cgroup": "0::/\n"}, 8, id="v2 without limits"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8, id="v2 unlimited"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3, id="v2"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2, id="v2 fraction"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "20000 100000\n"}, 1, id="v2 below one"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "6400000 100000\n"}, 8, id="v2 above all"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "600000 100000\n",
            },
            2,
            id="v2 limited by the group above",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/../outside\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"},
            4,
            id="v2 path outside of the name space",
        ),
        pytest.param(
            V1 | {"proc/self/cgroup": "3:cpu,cpuacct:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "500000\n"}, 5, id="v1"
        ),
        pytest.param(
            V1 | {"proc/self/cgroup": "3:cpu,cpuacct:/docker/1f\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "500000\n"},
            5,
            id="v1 in a container that does not see its own path",
        ),
        pytest.param(
            V1 | {"proc/self/cgroup": "3:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"}, 8, id="v1 unlimited"
        ),
        pytest.param(
            V1 | {"proc/self/cgroup": "3:cpuset:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000\n"},
            8,
            id="v1 of another controller",
        ),
    ],
)
def test_the_smallest_limit_counts(tmp_path: Path, files: dict[str, str], cores: int):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert available_cores(tmp_path, affinity=8) == cores


def test_affinity_limits_too(tmp_path: Path):
    assert available_cores(tmp_path, affinity=1) == 1


def test_this_machine_has_at_least_one_core():
    assert available_cores() >= 1
