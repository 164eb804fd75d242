"""Measure and predict: load generation, benchmarks, laboratory front ends."""
