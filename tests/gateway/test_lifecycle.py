"""The table of states and moves."""

import itertools

import pytest

from gateway.control import VersionState
from gateway.lifecycle import MOVES, IllegalMoveError, Move, next_state


@pytest.mark.parametrize(("state", "move"), list(itertools.product(VersionState, Move)))
def test_a_move_is_in_the_table_or_a_defect(state: VersionState, move: Move) -> None:
    if (state, move) in MOVES:
        assert next_state(state, move) is MOVES[state, move]
    else:
        with pytest.raises(IllegalMoveError, match=state.value):
            next_state(state, move)


def test_every_state_can_be_reached_and_left_again() -> None:
    reached = set(MOVES.values())
    left = {state for (state, _), after in MOVES.items() if after is not state}

    assert reached == left == set(VersionState)


def test_whatever_fails_while_a_version_serves_leaves_it_serving() -> None:
    assert MOVES[VersionState.READY, Move.LOAD_FAILED] is VersionState.READY
