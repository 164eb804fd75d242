"""Settings for all tests."""

from hypothesis import settings

# Examples are the same on every run and may take their time on a busy machine.
settings.register_profile("shoal", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("shoal")
