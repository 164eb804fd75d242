"""In what files and in what numbers networks are written. Apart from the rest: the command line needs it early."""

import enum


class Format(enum.StrEnum):
    """In what file a network is written, and for which backend."""

    ONNX = "onnx"
    TORCHSCRIPT = "torchscript"
    TENSORRT = "tensorrt"


class Precision(enum.StrEnum):
    """In what numbers a variant computes."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
