"""The v2 protocol over HTTP (Triton, KServe, Open Inference Protocol)."""
