"""What the `shoal` policy learns while it works: plain floats, no clock; every time is an argument in nanoseconds.

The constants are weights of exponential averages and limits of what one value can do; none of them is a setting.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence

_ENOUGH = 8  # samples of the house and of returns before anybody waits for callers


class ServiceTimes:
    """How long a batch of so many rows occupies an instance, learned from every batch that it ran.

    One cell for each size seen; between cells linear. Below the smallest in proportion to the rows, which is too
    short wherever a batch has fixed costs: so small sizes get tried and their truth is found. Above the largest each
    row costs half of what one costs on average there. A new value also moves all other cells a little (clocks and
    neighbours change all sizes alike); three values in a row that are far off on one side rescale everything.

    Args:
        known_ns: Times by rows to begin with, e.g. from a warm-up or of another instance.

    Attributes:
        error: Mean relative error of `of`, for sizes between those seen.
    """

    def __init__(self, known_ns: Mapping[int, float]) -> None:
        self.error = 0.05
        self._means_ns = dict(known_ns)
        self._counts = dict.fromkeys(known_ns, 2)
        self._sizes = sorted(known_ns)
        self._table_ns = [0.0]  # by rows, made as far as asked for, until the next value comes
        self._compared = 0
        self._misses = 0  # in a row, on the side that the sign says

    def copy(self) -> "ServiceTimes":
        """The same knowledge for another instance, soon outweighed by its own values."""
        return ServiceTimes(self._means_ns)

    def of(self, rows: int) -> float:
        """Expected ns; never much less than for one row less, whatever noise says. 1 while nothing is known."""
        if len(self._table_ns) <= rows:
            self._extend(rows)
        return self._table_ns[rows]

    def add(self, rows: int, took_ns: float) -> None:
        """A batch of so many rows has taken so long."""
        sizes, means_ns = self._sizes, self._means_ns
        if sizes and sizes[0] <= rows <= sizes[-1]:
            self._compare(rows, took_ns / self.of(rows))
        if rows in means_ns:
            self._counts[rows] += 1
            means_ns[rows] += max(1 / self._counts[rows], 0.1) * (took_ns - means_ns[rows])
        else:
            insort(sizes, rows)
            means_ns[rows] = took_ns
            self._counts[rows] = 1
        self._table_ns = [0.0]

    def _extend(self, rows: int) -> None:
        """Make the table as far as to so many rows: anew after each value, so a piece between two cells at a time."""
        table_ns = self._table_ns
        while len(table_ns) <= rows:
            first = len(table_ns)
            place = bisect_left(self._sizes, first)
            last = rows
            if place < len(self._sizes):  # below the next cell, which is a piece of its own
                last = min(rows, max(self._sizes[place] - 1, first))
            for time_ns in self._interpolated(place, range(first, last + 1)):
                table_ns.append(max(time_ns, 0.9 * table_ns[-1]))

    def _interpolated(self, place: int, wanted: range) -> Sequence[float]:
        """Times of sizes between the cells before and at `place`, or of the latter."""
        sizes, means_ns = self._sizes, self._means_ns
        if not sizes:
            return [1.0 for _ in wanted]
        if place == len(sizes):
            left, left_ns = sizes[-1], means_ns[sizes[-1]]
            return [left_ns * (0.5 + 0.5 * rows / left) for rows in wanted]
        right, right_ns = sizes[place], means_ns[sizes[place]]
        if place == 0 or wanted[0] == right:
            return [right_ns * rows / right for rows in wanted]
        left, left_ns = sizes[place - 1], means_ns[sizes[place - 1]]
        rise_ns, width = right_ns - left_ns, right - left
        return [left_ns + rise_ns * (rows - left) / width for rows in wanted]

    def _compare(self, rows: int, ratio: float) -> None:
        miss = ratio - 1
        if abs(miss) <= max(0.25, 4 * self.error):
            self._misses = 0
        else:
            side = 1 if miss > 0 else -1
            self._misses = side if self._misses * side <= 0 else self._misses + side
        self._compared += 1
        if self._compared > 10:
            self.error += 0.05 * (min(abs(miss), 1.0) - self.error)  # one stray value is not a bad estimate
        if abs(self._misses) == 3:
            self._misses = 0
            self._counts = {size: min(count, 2) for size, count in self._counts.items()}
            self._scale(ratio)
        else:
            self._scale(1 + 0.05 * min(max(miss, -0.5), 1.0), rows)

    def _scale(self, factor: float, but: int | None = None) -> None:
        means_ns = self._means_ns
        for rows in means_ns:
            if rows != but:
                means_ns[rows] *= factor


class Attendance:
    """How many rows are in the house, waiting or running, just before answers leave.

    Callers that come back after each answer keep it constant; independent ones make its variance about its mean.

    Attributes:
        mean_rows: Exponential average.
        variance: Of it.
    """

    def __init__(self) -> None:
        self.mean_rows = self.variance = 0.0
        self._count = 0

    def add(self, rows: int) -> None:
        """So many were there."""
        self._count += 1
        weight = max(1 / self._count, 1 / 16)
        deviation = rows - self.mean_rows
        self.mean_rows += weight * deviation
        self.variance = (1 - weight) * (self.variance + weight * deviation * deviation)

    @property
    def is_steady(self) -> bool:
        """Whether it varies less than independent callers would make it vary."""
        return self._count > _ENOUGH and self.variance < 0.6 * max(self.mean_rows - 1, 0.5)


_LEAST_WAIT_NS = 50_000.0  # a timer is no finer; callers may be back at the very instant of their answer


class Returns:
    """How long after an answer its caller sends again: arrivals are matched with the oldest answers, row by row.

    Attributes:
        spread_ns: Mean deviation from the mean return time.
    """

    def __init__(self) -> None:
        self.spread_ns = 0.0
        self._mean_ns = 0.0
        self._matches = 0
        self._answered_ns: deque[int] = deque()

    @property
    def _limit_ns(self) -> float:
        return max(self._mean_ns + 4 * self.spread_ns, _LEAST_WAIT_NS)

    def answered(self, rows: int, now_ns: int) -> None:
        """So many rows have been answered."""
        self._answered_ns.extend([now_ns] * rows)

    def arrived(self, rows: int, now_ns: int, window_ns: float) -> None:
        """So many rows have come. Answers older than the window are not what they come after."""
        answered_ns = self._answered_ns
        if answered_ns:
            self._forget(now_ns - window_ns)
        mean_ns, spread_ns = self._mean_ns, self.spread_ns
        for _ in range(min(rows, len(answered_ns))):
            delay_ns = now_ns - answered_ns.popleft()
            if self._matches:
                deviation_ns = delay_ns - mean_ns
                spread_ns += 0.05 * (abs(deviation_ns) - spread_ns)
                mean_ns += 0.05 * deviation_ns
            else:
                mean_ns, spread_ns = delay_ns, delay_ns / 2
            self._matches += 1
        self._mean_ns, self.spread_ns = mean_ns, spread_ns

    def expected(self, now_ns: int) -> int:
        """Rows that have been answered so lately that they may still come back."""
        if self._matches <= _ENOUGH:
            return 0
        self._forget(now_ns - self._limit_ns)
        return len(self._answered_ns)

    def latest_ns(self, rows: int) -> float:
        """By when so many of the expected rows should be back."""
        return self._answered_ns[rows - 1] + self._limit_ns

    def _forget(self, before_ns: float) -> None:
        answered_ns = self._answered_ns
        while answered_ns and answered_ns[0] < before_ns:
            answered_ns.popleft()
