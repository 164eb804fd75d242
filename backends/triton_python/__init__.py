"""Models that are code in the form of Triton's python backend: a class ``TritonPythonModel``."""
