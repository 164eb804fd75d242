"""How many loads begin at once."""

import asyncio

from gateway.load_turns import LoadTurns

PATIENCE_S = 20


class Loads:
    """Loads that end when they are told to, or when they are the last."""

    def __init__(self, turns: LoadTurns, count: int) -> None:
        self.begun: list[int] = []
        self.may_end = asyncio.Event()
        self._turns = turns
        self._count = count
        self.tasks = [asyncio.create_task(self._load(number)) for number in range(count)]

    async def _load(self, number: int) -> None:
        async with self._turns.turn():
            self.begun.append(number)
            if len(self.begun) == self._count:
                self.may_end.set()
            await self.may_end.wait()

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self.tasks)


async def a_few_turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_no_more_than_so_many_begin_at_once() -> None:
    loads = Loads(LoadTurns(2, patience_s=3600), 5)
    await a_few_turns()
    before = list(loads.begun)
    loads.may_end.set()
    await loads.ended()

    assert (before, loads.begun) == ([0, 1], [0, 1, 2, 3, 4])


async def test_those_that_take_long_let_the_next_begin() -> None:
    loads = Loads(LoadTurns(1, patience_s=0.01), 3)
    await loads.ended()

    assert loads.begun == [0, 1, 2]


async def test_a_turn_that_was_given_away_is_not_given_back_once_more() -> None:
    turns = LoadTurns(1, patience_s=0.05)
    await Loads(turns, 3).ended()  # the last of them ends at once, with its turn
    loads = Loads(turns, 2)
    await a_few_turns()

    assert loads.begun == [0]
    await loads.ended()
