"""Which figures can be compared in a run, and how close they must come: the family of a trace.

The family follows from the configuration and the load alone. M is the largest batch, p the smallest preferred size
(M without any), D the delay, N the instances, c the clients of a closed loop.

* Open loops have no memory of their start, so every figure counts. Light (A) or loaded (A2) by utilisation: sent
  requests per second over what N instances that always run M rows can do. Below a third, batches are what one window
  collects, and the sampling floor of the histogram is 0.015 of a batch; above, batches form behind running ones, and
  the floor is more than twice that.
* A closed loop repeats a cycle of batch sizes. How many cycles are stable decides what can be asked of one recorded
  run: one (B: the histogram itself), few (C: some start must reach the recorded cycle), many (D: only averages).
  - One: c = 1 or no batching; the clients fit into one smallest preferred batch whose window collects them all (D > 0,
    c <= p); one instance and two such batches that alternate (D > 0, c = 2p); twice the largest batch, so that M wait
    whenever an instance frees (c = 2M, N = 1, but with D = 0 only if M is the one size at which staging stops). Without
    a delay and with p = M, or with a queue policy (late binding), more clients than that change nothing.
  - Many: with c > 2M what is left over after the full batches drifts, merges and splits anew; with a queue policy each
    batch takes whoever is back, so sizes drift as soon as the clients do not fit into one batch.
  - Few: the rest. Groups of clients that return together stay together, in as many splits as the batcher can keep.
* Where requests can be refused (a queue timeout, or a limit below c) answered and refused ones count apart (E). If the
  limit is reached only while a batch changes hands (c <= limit + M*N), a race of 0.2 ms decides about every refusal.
* TorchServe (F) and LitServe, mosec, MLServer (G) open a window of D at a moment that does not depend on the clients.
  In a closed loop batches have one size if all clients are back before the window ends, or if 2M or more clients fill
  it always; in between those that miss it shift the next one (G2, or F with the same figures: only averages). Several
  workers take requests from each other, as their threads happen to run. MLServer starts batches without looking at its
  worker, so whatever does not fill one or two whole batches drifts.
* Where a grid of starts is run, wrong policies can reach the recorded cycle too, from some start. In D and E, where all
  cycles of the right policy are about equally fast, no start may make it much slower than the real server was.
* Where full batches always wait, a request stays for c/M of them, rounded down or up. If c/M is about halfway between,
  so is the median latency: it jumps by a batch with a few requests more on one side. The mean is asked for instead.
* BentoML and Ray (H) are shown and never decide: their front ends cost more than their policies.
"""

from loadtest.fidelity import limits
from loadtest.fidelity.clients import READ_MS, SEND_MS
from loadtest.fidelity.limits import Family
from loadtest.fidelity.servers import SURROUNDINGS
from loadtest.fidelity.service import RecordedModel
from loadtest.fidelity.traces import BatchingConfig, Server, Trace

_LOADED = 1 / 3
_HALFWAY = 0.25
_MILLISECOND_US = 1_000
_SECOND_US = 1_000_000


def family(trace: Trace, service: RecordedModel) -> Family:
    """The family of a trace; see the module's docstring for the rule."""
    asked = _by_server(trace, service)
    return asked.with_mean_latency() if _splits_latencies(trace.config, trace.clients) else asked


def _splits_latencies(config: BatchingConfig, clients: int | None) -> bool:
    if clients is None or clients < 2 * config.max_batch_rows:
        return False
    return abs(clients / config.max_batch_rows % 1 - 0.5) <= _HALFWAY


def _by_server(trace: Trace, service: RecordedModel) -> Family:
    match trace.server:
        case Server.TRITON:
            return (
                _open_triton(trace, service) if trace.clients is None else _closed_triton(trace.config, trace.clients)
            )
        case Server.TORCHSERVE:
            return limits.F_OPEN if trace.clients is None else _closed_torchserve(trace.config, trace.clients)
        case Server.BENTOML | Server.RAYSERVE:
            return limits.H
        case _:
            return limits.G_OPEN if trace.clients is None else _closed_window(trace.server, trace.config, trace.clients)


def _open_triton(trace: Trace, service: RecordedModel) -> Family:
    config, around = trace.config, SURROUNDINGS[trace.server]
    if config.timeout_us or config.queue_limit_requests:
        return limits.E
    rows = config.max_batch_rows if config.batches else 1
    around_ms = around.pre.base_ms + around.post.base_ms + rows * (around.pre.row_ms + around.post.row_ms)
    busy_us = service.median_us(rows) + around_ms * _MILLISECOND_US
    capacity_per_s = config.instances * rows * _SECOND_US / busy_us
    return limits.A if trace.recording.requests_per_s < _LOADED * capacity_per_s else limits.A2


def _closed_triton(config: BatchingConfig, clients: int) -> Family:
    limit = config.queue_limit_requests
    if config.timeout_us or 0 < limit < clients:
        is_race = not config.timeout_us and clients <= limit + config.max_batch_rows * config.instances
        return limits.E_RACE if is_race else limits.E
    if clients == 1 or not config.batches or _has_one_cycle(config, clients):
        return limits.B if config.instances == 1 else limits.B_MANY_INSTANCES
    many = clients > 2 * config.max_batch_rows or config.has_queue_policy
    return limits.D if many else limits.C


def _has_one_cycle(config: BatchingConfig, clients: int) -> bool:
    largest = config.max_batch_rows
    smallest = (config.preferred_rows or (largest,))[0]
    if config.delay_us and clients <= smallest:
        return True
    if config.instances > 1:
        return False
    if config.has_queue_policy:
        return clients >= 2 * largest
    if not config.delay_us:
        return smallest == largest and clients >= 2 * largest
    return clients in (2 * smallest, 2 * largest)


def _closed_torchserve(config: BatchingConfig, clients: int) -> Family:
    return limits.F if _is_settled(Server.TORCHSERVE, config, clients) else limits.F_DRIFTING


def _closed_window(server: Server, config: BatchingConfig, clients: int) -> Family:
    if not _is_settled(server, config, clients):
        return limits.G2
    return limits.G_SLOW_ANSWERS if server is Server.MLSERVER else limits.G


def _is_settled(server: Server, config: BatchingConfig, clients: int) -> bool:
    """Whether batch sizes of a server with windows stay what they are."""
    largest, around = config.max_batch_rows, SURROUNDINGS[server]
    if clients == 1 or not config.batches:
        return True
    if config.instances > 1:
        return False
    if server is Server.MLSERVER and clients > largest:
        return clients == 2 * largest
    back_us = clients * max(around.gap_ms(resends=True), READ_MS + SEND_MS) * _MILLISECOND_US
    return clients >= 2 * largest or (clients <= largest and back_us <= config.delay_us + around.timer_slack_us)
