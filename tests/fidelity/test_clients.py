"""The client thread: when requests enter a server and when answers are read."""

from dataclasses import replace

import numpy as np
import pytest

from batching.clock import MILLISECOND_NS
from batching.simulation import Affine
from loadtest.fidelity.clients import Clients, ClientThread, Traffic
from loadtest.fidelity.servers import SURROUNDINGS
from loadtest.fidelity.traces import Server

AROUND = replace(
    SURROUNDINGS[Server.TRITON], send_ms=0.26, first_answer=Affine(0.6, 0.1), answer_gap_ms=0.02, jitter=0.0
)


def wire(*, resends, around=AROUND):
    return ClientThread(around, resends, Traffic()).open(np.random.default_rng(1))


def milliseconds(times_ns):
    return [round(at_ns / MILLISECOND_NS, 3) for at_ns in times_ns]


def test_answers_of_an_open_loop_are_read_one_after_another():
    answers_ns = wire(resends=False).answered_ns(0, requests=3, rows=3)

    assert milliseconds(answers_ns) == [0.925, 0.95, 0.975]  # 0.9 for the first, 0.025 to read each


def test_in_a_closed_loop_sending_again_takes_the_threads_time_too():
    answers_ns = wire(resends=True).answered_ns(0, requests=3, rows=3)

    assert milliseconds(answers_ns) == [0.925, 1.012, 1.099]  # 0.062 more


def test_a_process_that_answers_and_accepts_answers_more_slowly_in_a_closed_loop():
    litserve = replace(AROUND, accept_ms=0.25)

    first, second = (wire(resends=resends, around=litserve).answered_ns(0, 2, 2) for resends in (False, True))

    assert np.diff(milliseconds(first)) == pytest.approx([0.025])  # the client's own time to read
    assert np.diff(milliseconds(second)) == pytest.approx([0.27])  # 0.02 + 0.25 of the server


def test_requests_of_a_burst_enter_the_server_close_together():
    thread = wire(resends=True)

    entered_ns = [thread.entered_ns(sent_ns) for sent_ns in thread.answered_ns(0, requests=3, rows=3)]

    assert milliseconds(entered_ns) == [1.265, 1.312, 1.359]  # the last one is 0.26 on its way


def test_a_single_request_is_not_held_back():
    thread = wire(resends=True)

    (read_ns,) = thread.answered_ns(0, requests=1, rows=1)

    assert thread.entered_ns(read_ns) - read_ns == pytest.approx(0.26 * MILLISECOND_NS)


def test_a_refusal_waits_until_the_thread_has_time():
    thread = wire(resends=True)
    last_ns = thread.answered_ns(0, requests=3, rows=3)[-1]

    assert milliseconds([thread.refused_ns(0)]) == milliseconds([last_ns + 0.087 * MILLISECOND_NS])


def test_clients_of_a_closed_loop_send_as_many_requests_as_were_recorded():
    first, second = Clients(sent_ns=[0, 10], requests=3, resends=True).arrivals(np.random.default_rng(1))

    assert first.sender is second.sender is not None
    third = first.sender.next_request(500, is_answered=True)
    assert third is not None
    assert third.at_ns == 500
    assert second.sender.next_request(600, is_answered=False) is None


def test_clients_of_an_open_loop_do_not_wait_for_answers():
    arrivals = list(Clients(sent_ns=[5, 7], requests=2, resends=False).arrivals(np.random.default_rng(1)))

    assert [(arrival.at_ns, arrival.sender) for arrival in arrivals] == [(5, None), (7, None)]
