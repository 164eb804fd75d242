"""When the `shoal` policy lets an idle instance wait for more rows."""

from typing import NamedTuple

from batching.core.policy import View
from batching.core.tickets import Ticket
from batching.policies.shoal_estimators import Attendance, Returns
from batching.policies.shoal_sizes import Scene, house_rows, share


class Wait(NamedTuple):
    """For more rows than wait now.

    Attributes:
        until_ns: Its end.
        rows: With so many waiting it is worth thinking again.
        head: The first request; another one may be more urgent.
    """

    until_ns: int
    rows: int
    head: Ticket

    def goes_on(self, view: View) -> bool:
        """Whether nothing has come that could end it before its time."""
        return view.now_ns < self.until_ns and view.queue.rows < self.rows and view.queue.first is self.head


def callers_back(scene: Scene, attendance: Attendance, returns: Returns) -> Wait | None:
    """For callers that have just been answered, if running them together saves more than waiting costs.

    With several instances for no more than fills this one's share.
    """
    rows, of = scene.rows, scene.times.of
    room = scene.view.max_batch_rows - rows
    if room <= 0 or not attendance.is_steady:
        return None
    now_ns = scene.view.now_ns
    back = min(round(attendance.mean_rows) - house_rows(scene.view), room, returns.expected(now_ns))
    if scene.slots > 1:
        back = min(back, share(attendance.mean_rows, scene.slots) - rows)
    if back <= 0:
        return None
    saved_ns = of(rows) + of(back) - of(rows + back)
    latest_ns = returns.latest_ns(back)
    expected_ns = max(latest_ns - 3 * returns.spread_ns - now_ns, 0.0)
    # Of more callers than fit, some stay behind and make a batch anyway: of twice as many, waiting saves none.
    fitting = scene.slots * scene.view.max_batch_rows / attendance.mean_rows
    worth_ns = back * saved_ns * min(2 * fitting - 1, 1.0)
    if latest_ns - now_ns >= saved_ns or rows * expected_ns >= worth_ns:
        return None
    return _wait(scene, latest_ns, rows + (back + 1) // 2)


def grown(scene: Scene, pressure: float) -> Wait | None:
    """While several instances have to refuse: for one more row, if that leaves time for the batch and a queue.

    Larger batches are what ends the pressure; the other instances work meanwhile.
    """
    head, rows, slots = scene.head, scene.rows + 1, scene.slots
    if pressure <= 0.1 or head.deadline_ns is None:
        return None  # nearly always
    if scene.view.idle_slots >= slots or rows > scene.view.max_batch_rows:
        return None
    has_time = (1 + 1 / slots) * scene.safe_ns(rows) <= head.deadline_ns - head.arrival_ns
    return _wait(scene, scene.deadline_ns, rows) if has_time else None


def _wait(scene: Scene, until_ns: float, rows: int) -> Wait | None:
    """A wait that leaves time for the first request in a batch of one row more; None if it were over already."""
    until_ns = int(min(until_ns, scene.deadline_ns - scene.safe_ns(scene.rows + 1)))
    return Wait(until_ns, rows, scene.head) if until_ns > scene.view.now_ns else None
