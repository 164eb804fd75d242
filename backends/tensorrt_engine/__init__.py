"""TensorRT: plan files, and engines built from ONNX files and kept in a cache."""
