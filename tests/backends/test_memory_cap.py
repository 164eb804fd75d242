"""The cap that follows a device's memory."""

from backends.memory_cap import RETRY_NS, MemoryCap


def test_a_batch_that_does_not_fit_halves_the_cap_from_its_own_size():
    cap = MemoryCap(64)

    lowered = [cap.too_large(rows, now_ns=0) for rows in (32, 8, 32)]

    assert lowered == [True, True, False]
    assert (cap.rows, cap.failures) == (4, 3)


def test_after_a_while_without_failures_the_cap_doubles_up_to_the_largest():
    cap = MemoryCap(20)
    cap.too_large(16, now_ns=0)

    allowed = [cap.allowed_rows(now_ns) for now_ns in (0, RETRY_NS - 1, RETRY_NS, 2 * RETRY_NS - 1, 2 * RETRY_NS)]

    assert allowed == [8, 8, 16, 16, 20]


def test_where_only_some_sizes_are_run_the_next_smaller_one_is_the_cap():
    cap = MemoryCap(8, (1, 8))

    assert cap.next_smaller(8) == 1
    assert cap.too_large(8, now_ns=0)
    assert (cap.rows, cap.next_smaller(1)) == (1, 0)


def test_the_cap_is_not_below_the_smallest_size_that_is_run():
    cap = MemoryCap(8, (4, 8))

    lowered = [cap.too_large(rows, now_ns=0) for rows in (8, 4)]

    assert (lowered, cap.rows) == ([True, False], 4)


def test_a_single_row_that_does_not_fit_leaves_a_cap_of_one():
    cap = MemoryCap(4)

    cap.too_large(1, now_ns=0)

    assert cap.rows == 1
