"""What a simulated request costs: requests per second of one core, scheduler included, and the memory of a long run.

The server takes 6 ms + 1.2 ms a row, batches up to 32. Open loop: Poisson at 80 % of what it can do; closed loop: 64
callers.
"""

import resource
import time
from collections.abc import Callable, Mapping

from batching.clock import SECOND_NS
from batching.core.policy import Policy
from batching.policies.greedy import Greedy
from batching.policies.triton import TritonSettings, create_triton
from batching.simulation import Affine, ClosedLoop, Poisson, Service, simulate
from batching.simulation.arrivals import Load

MAX_BATCH_ROWS = 32
CAPACITY_PER_S = MAX_BATCH_ROWS / (0.006 + 0.0012 * MAX_BATCH_ROWS)
SERVICE = Service(Affine(6, 1.2))
SIMULATED_S = 100
SHORT, LONG = 200_000, 1_000_000  # requests
ROUNDS = 3

POLICIES: Mapping[str, Callable[[], Policy]] = {
    "greedy": Greedy,
    "triton, no delay": lambda: create_triton(TritonSettings(), MAX_BATCH_ROWS),
    "triton, 8 16 32 and 5 ms": lambda: create_triton(
        TritonSettings(preferred_batch_size=(8, 16, 32), max_queue_delay_microseconds=5_000), MAX_BATCH_ROWS
    ),
}
LOADS: Mapping[str, Load] = {
    "open, 80 %": Poisson(0.8 * CAPACITY_PER_S),
    "closed, 64": ClosedLoop(clients=64),
}


def requests_per_s(make_policy: Callable[[], Policy], load: Load) -> float:
    """Simulated requests per second of processor time: the best of some rounds, as neighbours only slow down."""
    rates = []
    for _ in range(ROUNDS):
        began_ns = time.process_time_ns()
        statistics = simulate(make_policy, load, SERVICE, duration_s=SIMULATED_S, warm_up_s=0)
        rates.append(statistics.answered * SECOND_NS / (time.process_time_ns() - began_ns))
    return max(rates)


def peak_mib_after(requests: int) -> float:
    """The most memory that this process has ever had, after a simulation of about so many requests."""
    rate_per_s = 0.8 * CAPACITY_PER_S
    simulate(Greedy, Poisson(rate_per_s), SERVICE, duration_s=requests / rate_per_s)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print speeds, then memory."""
    for policy_name, make_policy in POLICIES.items():
        for load_name, load in LOADS.items():
            rate = requests_per_s(make_policy, load)
            print(f"{policy_name:26} {load_name:12} {rate:9,.0f} simulated requests/s, {1e6 / rate:5.1f} us each")
    short_mib = peak_mib_after(SHORT)
    long_mib = peak_mib_after(LONG)
    print(f"peak memory {short_mib:.1f} MiB after {SHORT:,} requests, +{long_mib - short_mib:.2f} MiB after {LONG:,}")


if __name__ == "__main__":
    main()
