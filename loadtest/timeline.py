"""A schedule as text: who arrived when, and which batches ran where. For documentation and for looking at a policy.

`python -m loadtest.timeline POLICY [NAME=VALUE ...]` draws what a policy makes of one small load, the one of the
pictures in docs/policies.md: ten requests of one row, batches of at most four rows that take 3 ms and 1 ms a row.
"""

import argparse
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from batching.clock import MILLISECOND_NS
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.profiles import PROFILES, ProfileError, create_policy
from batching.simulation import Arrival, Execution, Outcome, Simulation

LARGEST_BATCH_ROWS = 4
LOAD_MS: Mapping[str, float] = {
    "a": 2, "b": 10, "c": 11, "d": 12, "e": 13, "f": 14.5, "g": 16, "h": 19.7, "i": 21, "j": 31,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What `NAME=VALUE` can say besides the policy's own parameters.

    Attributes:
        instances: How many instances run batches.
        faithful: As in shoal.toml: keep the original's lateness with timeouts, and enforce no deadlines.
        deadline_ms: How long after its arrival the caller of each request wants an answer; None: callers never mind.
        can_abort: Whether running batches can be aborted. The server's cannot.
    """

    instances: int = 1
    faithful: bool = False
    deadline_ms: float | None = None
    can_abort: bool = False

    def __post_init__(self) -> None:
        """Refuse what nobody could be answered under."""
        if self.instances < 1:
            raise ValueError(f"instances must be at least 1, found {self.instances}")
        if self.deadline_ms is not None and self.deadline_ms <= 0:
            raise ValueError(f"deadline_ms must be above 0, found {self.deadline_ms}")


@dataclass(frozen=True, slots=True)
class Picture:
    """A policy in front of the load.

    Attributes:
        policy: A key of `PROFILES`.
        circumstances: What runs it.
        parameters: The policy's own, by their original names.
    """

    policy: str
    circumstances: Circumstances = Circumstances()
    parameters: Mapping[str, object] = field(default_factory=dict)

    def draw(self) -> str:
        """Run the simulator and draw what happened.

        Raises:
            ProfileError: No such policy, or a parameter that it does not have or that cannot be.
        """
        circumstances = self.circumstances
        policy = create_policy(
            self.policy, self.parameters, max_batch_rows=LARGEST_BATCH_ROWS, faithful=circumstances.faithful
        )
        scheduler = Scheduler(
            policy,
            Limits(max_batch_rows=LARGEST_BATCH_ROWS),
            enforce_deadlines=not circumstances.faithful,
            can_abort=circumstances.can_abort,
        )
        names = (
            ["instance"]
            if circumstances.instances == 1
            else [f"instance {n}" for n in range(1, circumstances.instances + 1)]
        )
        load = arrivals(circumstances.deadline_ms)
        return draw(load, Simulation(scheduler, service_ns, names).run(load))


def arrivals(deadline_ms: float | None = None) -> list[Arrival]:
    """The load; every caller has the same patience."""
    patience_ns = None if deadline_ms is None else round(deadline_ms * MILLISECOND_NS)
    return [
        Arrival(name=name, at_ns=round(at_ms * MILLISECOND_NS), patience_ns=patience_ns)
        for name, at_ms in LOAD_MS.items()
    ]


def service_ns(rows: int) -> int:
    """Time that a batch of so many rows takes."""
    return (3 + rows) * MILLISECOND_NS


def picture_of(policy: str, settings: Sequence[str]) -> Picture:
    """What `POLICY [NAME=VALUE ...]` asks for. Values are TOML; what is none is a text.

    Raises:
        ValueError: Not of the form NAME=VALUE, or an impossible circumstance.
    """
    given = dict(map(_setting, settings))
    own = {name: value for name, value in given.items() if name not in Circumstances.__slots__}
    try:
        circumstances = TypeAdapter(Circumstances).validate_python(
            {name: given[name] for name in given if name not in own}
        )
    except ValidationError as error:
        raise ValueError(_sentence(error)) from error
    return Picture(policy, circumstances, own)


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    own = first["msg"].removeprefix("Value error, ")
    return f"{first['loc'][0]}: found {first['input']!r}, expected: {own}" if first["loc"] else own


def _setting(word: str) -> tuple[str, object]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise ValueError(f"found {word!r}, expected NAME=VALUE, as in max_batch_delay_ms=5")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value


def draw(load: Sequence[Arrival], outcome: Outcome, column_ns: int = MILLISECOND_NS // 2) -> str:
    """One line of time, one of arrivals, one for each instance, one of those who were turned away.

    A batch is drawn from its start to its end with the names of its members; one that was aborted ends with an x.

    Args:
        load: Arrivals with names of one letter.
        outcome: What the simulator made of them.
        column_ns: Time that one column of text stands for.
    """
    lines = {"ms": _scale(load, outcome, column_ns), "arrives": _row(load, column_ns)}
    by_instance: dict[str, list[Execution]] = {}
    for execution in outcome.executions:
        by_instance.setdefault(execution.instance, []).append(execution)
    for name, executions in sorted(by_instance.items(), key=lambda entry: (len(entry[0]), entry[0])):
        lines[name] = _instance(executions, column_ns)
    turned_away = _turned_away(load, outcome)
    if turned_away:
        lines["refused"] = _row(turned_away, column_ns)
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {line}".rstrip() for name, line in lines.items())


def _turned_away(load: Sequence[Arrival], outcome: Outcome) -> list[Arrival]:
    """Everybody who got no answer, at the moment when he was told."""
    sent_ns = {arrival.name: arrival.at_ns for arrival in load}
    moments = [(name, sent_ns[name]) for name, _ in outcome.refused]
    moments += [(name, now_ns) for name, now_ns, _ in outcome.dropped]
    moments += outcome.expired
    return [Arrival(name=name, at_ns=now_ns) for name, now_ns in moments]


def _scale(load: Sequence[Arrival], outcome: Outcome, column_ns: int) -> str:
    """The time in ms every 5 ms, to the first mark that nothing comes after."""
    moments = [execution.end_ns for execution in outcome.executions] + [arrival.at_ns for arrival in load]
    step_ns = 5 * MILLISECOND_NS
    marks = range(0, max(moments, default=0) + step_ns, step_ns)
    return _place({at_ns // column_ns: str(at_ns // MILLISECOND_NS) for at_ns in marks})


def _row(load: Sequence[Arrival], column_ns: int) -> str:
    """Names at their columns; who comes while a column is taken stands in the next one."""
    columns: dict[int, str] = {}
    for arrival in sorted(load, key=lambda arrival: arrival.at_ns):
        column = arrival.at_ns // column_ns
        while column in columns:
            column += 1
        columns[column] = arrival.name
    return _place(columns)


def _instance(executions: Sequence[Execution], column_ns: int) -> str:
    blocks: dict[int, str] = {}
    for execution in executions:
        start, end = execution.start_ns // column_ns, execution.end_ns // column_ns
        inside = max(end - start - 2, 1)
        close = "x" if execution.is_aborted else "]"
        blocks[start] = "[" + "".join(execution.members).ljust(inside, "-")[:inside] + close
    return _place(blocks)


def _place(words: Mapping[int, str]) -> str:
    line = ""
    for column, word in sorted(words.items()):
        line = line.ljust(column) + word
    return line


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the picture that the command line asks for; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.timeline", description="Draw what a batching policy makes of a small load."
    )
    parser.add_argument("policy", metavar="POLICY", help=f"one of {', '.join(sorted(PROFILES))}")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="NAME=VALUE",
        help="parameters of the policy by their original names; and instances=1, deadline_ms (none), faithful=false, "
        "can_abort=false",
    )
    options = parser.parse_args(arguments)
    try:
        picture = picture_of(options.policy, options.settings).draw()
    except (ProfileError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{picture}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
