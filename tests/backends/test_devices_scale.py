"""How work spreads over devices in processes of their own, through the scheduler and the pool.

Figures belong to the benchmark, `loadtest.benchmarks.devices`; here stand the laws that hold on a busy machine too.
"""

import pytest

from batching.clock import SECOND_NS
from loadtest.benchmarks.devices import DEVICES, SERVICE_NS, devices, loaded
from loadtest.soak import serving

pytestmark = pytest.mark.long

BATCHES = 150 * DEVICES


@pytest.mark.parametrize("policy", ["greedy", "shoal"])
async def test_eight_devices_under_load_work_equally_long_and_at_the_same_time(policy: str):
    async with serving(devices(DEVICES, policy)) as (runner, pool):
        work = await loaded(runner, pool, BATCHES)

    # Counted is the time in which a device had a batch: a core that is taken away from its process is in that time, so
    # that only the scheduler can make it uneven.
    assert work.unevenness <= 1.1
    # Seven times one device is what an idle machine does. A single device, on any machine, does 200 batches a second
    # and not one more; twice that takes a fifth of one core here.
    assert work.batches_per_s > 2 * SECOND_NS / SERVICE_NS
    assert sum(work.batches.values()) == BATCHES
