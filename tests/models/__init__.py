"""Tests of reading models from disk."""
