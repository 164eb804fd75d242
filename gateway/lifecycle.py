"""The states of a model version and the legal moves between them, as one table."""

import enum
from collections.abc import Mapping

from gateway.control import VersionState


class Move(enum.Enum):
    """What happens to a version."""

    LOAD = "its loading begins"
    LOADED = "it is ready, and takes over from the one that served before, if any"
    LOAD_FAILED = "it could not be loaded or warmed up"
    UNLOAD = "it is taken out of service: nothing more is admitted"
    DRAINED = "all that was admitted has been answered, and it has been closed"
    BROKE = "it cannot go on"


_LOADING, _READY, _UNLOADING, _UNAVAILABLE = VersionState

MOVES: Mapping[tuple[VersionState, Move], VersionState] = {
    (_UNAVAILABLE, Move.LOAD): _LOADING,
    (_UNAVAILABLE, Move.LOAD_FAILED): _UNAVAILABLE,  # its configuration cannot even be read
    (_LOADING, Move.LOADED): _READY,
    (_LOADING, Move.LOAD_FAILED): _UNAVAILABLE,
    # A version that serves goes on while its successor is loaded beside it, and if that fails.
    (_READY, Move.LOAD): _READY,
    (_READY, Move.LOADED): _READY,
    (_READY, Move.LOAD_FAILED): _READY,
    (_READY, Move.UNLOAD): _UNLOADING,
    (_READY, Move.BROKE): _UNAVAILABLE,
    (_UNAVAILABLE, Move.LOADED): _READY,  # the one before broke while it was loaded
    (_UNLOADING, Move.DRAINED): _UNAVAILABLE,
}
"""The state after a move; what is not in here cannot happen."""


class IllegalMoveError(Exception):
    """A defect: something was to happen to a version that cannot happen in its state."""


def next_state(state: VersionState, move: Move) -> VersionState:
    """The state after a move. Raises IllegalMoveError."""
    try:
        return MOVES[state, move]
    except KeyError:
        raise IllegalMoveError(f"in state {state.value}: {move.value}") from None
