"""ONNX Runtime: sessions, execution providers and their options; only `executor` imports it."""
