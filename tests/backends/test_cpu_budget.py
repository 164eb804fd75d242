"""How many cores there are, read from a made-up file system."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.cpu_budget import CpuBudget, available_cores, cpu_budget, divide, explain_division

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


def test_the_budget_says_what_limits_it(tmp_path: Path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("250000 100000\n")

    budget = cpu_budget(tmp_path, affinity=16)

    assert budget == CpuBudget(affinity=16, quota=2.5)
    assert str(budget) == "2 cores (affinity 16, quota 2.5)"


@given(st.integers(1, 200), st.lists(st.text(min_size=1), min_size=1, max_size=50, unique=True))
def test_cores_are_divided_without_rest_into_parts_that_differ_by_one_at_most(cores: int, models: list[str]):
    shares = divide(cores, models)

    assert list(shares) == models
    assert max(shares.values()) - min(shares.values()) <= 1
    assert sum(shares.values()) == max(cores, len(models))


@pytest.mark.parametrize(
    ("budget", "models", "line"),
    [
        pytest.param(
            CpuBudget(2), ["lite0"], "2 cores (affinity 2, quota none) / 1 model on the CPU = 2 for 'lite0'", id="one"
        ),
        pytest.param(
            CpuBudget(16, 8.0),
            ["a", "b", "c"],
            "8 cores (affinity 16, quota 8) / 3 models on the CPU = 3 for 'a', 3 for 'b', 2 for 'c'",
            id="unequal",
        ),
        pytest.param(
            CpuBudget(4, 0.5),
            ["a", "b"],
            "1 core (affinity 4, quota 0.5) / 2 models on the CPU = 1 for 'a', 1 for 'b', which take turns",
            id="more models than cores",
        ),
        pytest.param(CpuBudget(4), [], "4 cores (affinity 4, quota none) / 0 models on the CPU = nothing", id="none"),
    ],
)
def test_the_division_is_explained_in_one_line(budget: CpuBudget, models: list[str], line: str):
    assert explain_division(budget, divide(budget.cores, models)) == line
