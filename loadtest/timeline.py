"""A schedule as text: who arrived when, and which batches ran where. For documentation and for looking at a policy."""

from collections.abc import Sequence

from batching.clock import MILLISECOND_NS
from batching.simulation import Arrival, Execution, Outcome


def draw(load: Sequence[Arrival], outcome: Outcome, column_ns: int = MILLISECOND_NS // 2) -> str:
    """One line of time, one of arrivals, one for each instance, one of those who were turned away.

    Args:
        load: Arrivals with names of one letter.
        outcome: What the simulator made of them.
        column_ns: Time that one column of text stands for.
    """
    lines = {"ms": _scale(outcome, column_ns), "arrives": _row(load, column_ns)}
    by_instance: dict[str, list[Execution]] = {}
    for execution in outcome.executions:
        by_instance.setdefault(execution.instance, []).append(execution)
    for name, executions in sorted(by_instance.items()):
        lines[name] = _instance(executions, column_ns)
    turned_away = [Arrival(name=name, at_ns=now_ns) for name, now_ns, _ in outcome.dropped]
    turned_away += [Arrival(name=name, at_ns=now_ns) for name, now_ns in outcome.expired]
    if turned_away:
        lines["refused"] = _row(turned_away, column_ns)
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {line}".rstrip() for name, line in lines.items())


def _scale(outcome: Outcome, column_ns: int) -> str:
    last_ns = max((execution.end_ns for execution in outcome.executions), default=0)
    ticks: dict[int, str] = {
        at_ns // column_ns: str(at_ns // MILLISECOND_NS) for at_ns in range(0, last_ns + 1, 5 * MILLISECOND_NS)
    }
    return _place(ticks)


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
        blocks[start] = "[" + "".join(execution.members).ljust(end - start - 2, "-")[: max(end - start - 2, 1)] + "]"
    return _place(blocks)


def _place(words: dict[int, str]) -> str:
    line = ""
    for column, word in sorted(words.items()):
        line = line.ljust(column) + word
    return line
