"""How an encoded image becomes one row of a model's input: part of the model version, declared in shoal.toml."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Three = tuple[float, float, float]


class Preprocessing(BaseModel):
    """The declaration, in the order in which it is applied; every field is explicit about its unit.

    The geometry is torchvision's: resize the shorter side to `resize`, then crop `crop` x `crop` from the centre. One
    row has `layout` and `dtype`; its value is ``(level - mean) / std`` with levels, mean and std in 0..255.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    exif: Literal["apply", "ignore"] = "apply"
    resize: Annotated[int, Field(ge=1, le=8192, description="shorter side after resizing, pixels")] = 256
    crop: Annotated[int, Field(ge=1, le=8192, description="side of the centre crop, pixels")] = 224
    filter: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    colour: Literal["RGB", "BGR"] = "RGB"
    mean: Annotated[Three, Field(description="per channel of `colour`, levels 0..255")] = (0.0, 0.0, 0.0)
    std: Annotated[Three, Field(description="per channel of `colour`, levels 0..255")] = (255.0, 255.0, 255.0)
    layout: Literal["CHW", "HWC"] = "CHW"
    dtype: Literal["float32", "uint8"] = "float32"
    output: Literal["logits", "probabilities"] = "logits"
