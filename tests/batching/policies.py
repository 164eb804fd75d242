"""Every policy in several settings, for the laws that hold for all of them."""

from collections.abc import Mapping

from batching.core.policy import Policy
from batching.profiles import PROFILES, create_policy

LARGEST = 8
SERVICE_US = {1: 720, 8: 1560}

SETTINGS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "shoal": {"": {}, "objective": {"latency_objective_us": 3_000}, "hopeless": {"refuse": "hopeless"}},
    "greedy": {"": {}},
    "single": {"": {}},
    "fixed": {"timeout": {"batch_rows": 4, "timeout_us": 2_003}},
    "triton": {
        "": {},
        "delay": {"max_queue_delay_microseconds": 301},
        "preferred": {"preferred_batch_size": (2, 4), "max_queue_delay_microseconds": 2_003},
        "late": {"default_queue_policy": {"max_queue_size": 9}, "max_queue_delay_microseconds": 301},
        "reject": {"default_queue_policy": {"default_timeout_microseconds": 1_507}},
        "levels": {
            "priority_levels": 2,
            "default_priority_level": 2,
            "default_queue_policy": {"timeout_action": "DELAY", "default_timeout_microseconds": 907},
        },
    },
    "torchserve": {
        "": {},
        "windows": {"batch_size": 4, "max_batch_delay_ms": 2},
        "at-once": {"batch_size": 4, "max_batch_delay_ms": 0},
        "timeout": {"batch_size": 4, "max_batch_delay_ms": 1, "client_timeout_in_mills": 3, "job_queue_size": 6},
        "tickets": {"batch_size": 4, "max_batch_delay_ms": 1, "use_job_ticket": True},
    },
    "bentoml": {"": {}, "trained": {"max_batch_size": 6, "max_latency_ms": 9, "trained": (0.0001, 0.0007, 0.001)}},
    "litserve": {"eager": {"max_batch_size": 4}, "windows": {"max_batch_size": 4, "batch_timeout": 0.002003}},
    "tfserving": {
        "": {"max_batch_size": 8},
        "timeout": {"max_batch_size": 4, "batch_timeout_micros": 2_003, "max_enqueued_batches": 3},
        "split": {"max_batch_size": 8, "enable_large_batch_splitting": True, "max_execution_batch_size": 4},
    },
    "rayserve": {"": {"batch_wait_timeout_s": 0.002003}, "rows": {"max_batch_size": 8, "batch_size_fn_rows": True}},
    "mlserver": {"": {}, "windows": {"max_batch_size": 4, "max_batch_time": 0.002003}},
    "mosec": {"": {}, "windows": {"max_batch_size": 4, "max_wait_time": 2, "timeout": 5, "capacity": 9}},
    "nexus": {
        "window": {"profile_us": SERVICE_US, "slo_us": 4_001},
        "earliest": {"profile_us": SERVICE_US, "slo_us": 4_001, "drop": "earliest"},
    },
    "symphony": {"": {"profile_us": SERVICE_US, "slo_us": 5_003}},
    "shepherd": {"": {"profile_us": SERVICE_US, "slo_us": 5_003}},
}

LABELS = sorted(f"{name}-{label}".rstrip("-") for name in PROFILES for label in SETTINGS[name])
"""One for each policy and setting. A profile without settings here is a KeyError."""


def make(label: str) -> Policy:
    """A fresh policy for batches of at most `LARGEST` rows."""
    name, _, setting = label.partition("-")
    return create_policy(name, SETTINGS[name][setting], max_batch_rows=LARGEST)
