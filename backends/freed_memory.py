"""Memory that models have freed, back to the operating system.

glibc keeps what threads have freed in arenas of their own, and a model that is loaded again comes with new threads.
"""

import ctypes


def return_freed_memory() -> None:
    """Let the C library give back what it does not need. Blocks for some milliseconds; does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
