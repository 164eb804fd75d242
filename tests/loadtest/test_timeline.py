"""Schedules as text, and the command that draws them."""

import pytest

from batching.clock import MILLISECOND_NS
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.simulation import Arrival, Simulation
from loadtest import timeline

FOUR_MS = 4 * MILLISECOND_NS


def drawn(*times_ms: float, instances: tuple[str, ...] = ("i",), patience_ms: int | None = None, **limits: int) -> str:
    """Requests a, b, ... under the greedy policy, in batches of two that take 4 ms."""
    patience_ns = None if patience_ms is None else patience_ms * MILLISECOND_NS
    load = [
        Arrival(name=chr(ord("a") + place), at_ns=round(at_ms * MILLISECOND_NS), patience_ns=patience_ns)
        for place, at_ms in enumerate(times_ms)
    ]
    scheduler = Scheduler(Greedy(), Limits(max_batch_rows=2, **limits))
    return timeline.draw(load, Simulation(scheduler, lambda _rows: FOUR_MS, instances).run(load))


def test_a_batch_is_drawn_from_its_start_to_its_end_with_its_members() -> None:
    assert drawn(1, 2, 3) == "\n".join(
        [
            "ms       0         5         10",
            "arrives    a b c",
            "i          [a-----][bc----]",
        ]
    )


def test_each_instance_has_a_line() -> None:
    lines = drawn(0, 1, instances=("i2", "i10")).splitlines()

    assert lines[2:] == ["i2       [a-----]", "i10        [b-----]"]


def test_who_arrives_while_a_column_is_taken_stands_in_the_next_one() -> None:
    assert drawn(0, 0, 0).splitlines()[1] == "arrives  abc"


def test_who_is_not_admitted_is_refused_when_he_arrives() -> None:
    assert drawn(0, 1, 2, max_requests=1).splitlines()[-1] == "refused      c"


def test_whose_deadline_passes_is_refused_then() -> None:
    assert drawn(0, 0, 1, patience_ms=5).splitlines()[-1] == "refused              c"


def test_time_goes_on_beyond_the_last_arrival() -> None:
    fixed = timeline.picture_of("fixed", ["batch_rows=4"]).draw()

    assert fixed.splitlines()[0].split()[-1] == "35"
    assert "i" not in fixed.splitlines()[-1].removeprefix("instance")  # it waits for ever


def test_a_batch_that_was_stopped_ends_with_an_x() -> None:
    settings = ["profile_us={1=4000,4=7000}", "slo_us=13000"]

    stopped = timeline.picture_of("shepherd", [*settings, "can_abort=true"]).draw()

    assert "[b---x[bcde" in stopped
    assert "x" not in timeline.picture_of("shepherd", settings).draw()


def test_a_text_needs_no_quotes() -> None:
    picture = timeline.picture_of("nexus", ["drop=earliest", "profile_us={1=4000}", "instances=2"])

    assert (picture.parameters["drop"], picture.circumstances.instances) == ("earliest", 2)


def test_the_command_prints_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    status = timeline.main(["greedy"])

    assert (status, capsys.readouterr().out) == (0, f"{timeline.picture_of('greedy', []).draw()}\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param(["magic"], 'policy: found "magic", expected one of bentoml', id="policy"),
        pytest.param(["fixed", "batch_row=4"], "batch_row: found an unknown parameter, expected batch_rows", id="knob"),
        pytest.param(["fixed", "batch_rows"], "found 'batch_rows', expected NAME=VALUE", id="no value"),
        pytest.param(["greedy", "instances=many"], "instances: found 'many', expected", id="no number"),
        pytest.param(["greedy", "instances=0"], "instances must be at least 1, found 0", id="no instances"),
        pytest.param(["greedy", "deadline_ms=-1"], "deadline_ms must be above 0, found -1.0", id="no time"),
    ],
)
def test_a_mistake_is_told(command: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = timeline.main(command)

    assert status == 2
    assert words in capsys.readouterr().err
