"""Executors in worker processes that may die: the process, its lanes, and the shared memory between."""
