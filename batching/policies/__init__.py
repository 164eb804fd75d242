"""Batching policies: when a batch starts and which requests are in it."""
