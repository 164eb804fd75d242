"""Repositories to start from: their configurations and the code of their models as data, and what writes them."""
