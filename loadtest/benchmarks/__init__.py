"""Benchmarks: scripts that print ratios from one run and assert nothing."""
