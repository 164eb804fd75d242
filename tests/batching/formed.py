"""When batches were formed, for policies that form them ahead of their start."""

from batching.clock import MICROSECOND_NS
from batching.core.commands import Start
from batching.simulation import Outcome


def formed(outcome: Outcome) -> str:
    """`0:abc 1000:de`: when each batch was closed, in us, and its members, in order of their start."""
    commands = [command for _, command in outcome.commands if isinstance(command, Start)]
    return " ".join(
        f"{command.sealed_ns // MICROSECOND_NS}:{''.join(execution.members)}"
        for command, execution in zip(commands, outcome.executions, strict=True)
    )
