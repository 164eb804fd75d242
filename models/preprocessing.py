"""How an encoded image becomes one row of a model's input: part of the model version, declared in shoal.toml."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Finite = Annotated[float, Field(allow_inf_nan=False)]
Three = tuple[Finite, Finite, Finite]
Level = Annotated[int, Field(ge=0, le=255)]


class Preprocessing(BaseModel):
    """The declaration, in the order in which it is applied; every field is explicit about its unit.

    The geometry is torchvision's: resize the shorter side to `resize`, then crop `crop` x `crop` from the centre. One
    row has `layout` and `dtype`; its value is ``(level - mean) / std`` with levels, mean and std in 0..255. A row of
    ``uint8`` holds the levels themselves, so that `mean` and `std` have no meaning and must be left out.

    Raises:
        pydantic.ValidationError: `crop` is larger than `resize`, a `std` is zero, a number is not finite, or `mean`
            or `std` is given for ``uint8``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    exif: Literal["apply", "ignore"] = "apply"
    background: Annotated[
        tuple[Level, Level, Level], Field(description="what transparency shows: red, green, blue, levels 0..255")
    ] = (255, 255, 255)  # white: what such pictures are looked at on; dropping alpha shows colours that nobody has seen
    resize: Annotated[int, Field(ge=1, le=8192, description="shorter side after resizing, pixels")] = 256
    crop: Annotated[int, Field(ge=1, le=8192, description="side of the centre crop, pixels, at most `resize`")] = 224
    filter: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    colour: Literal["RGB", "BGR"] = "RGB"
    mean: Annotated[Three, Field(description="per channel of `colour`, levels 0..255")] = (0.0, 0.0, 0.0)
    std: Annotated[Three, Field(description="per channel of `colour`, levels 0..255, not zero")] = (255.0, 255.0, 255.0)
    layout: Literal["CHW", "HWC"] = "CHW"
    dtype: Literal["float32", "uint8"] = "float32"
    output: Literal["logits", "probabilities"] = "logits"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.crop > self.resize:
            # torchvision would frame the picture in black, which no model was trained for.
            raise ValueError(
                f"found crop {self.crop} larger than resize {self.resize}, expected at most the shorter side"
            )
        if 0.0 in self.std:
            raise ValueError(f"found std {list(self.std)}, expected no zero: levels are divided by it")
        defaults = type(self).model_fields
        if self.dtype == "uint8" and (self.mean, self.std) != (defaults["mean"].default, defaults["std"].default):
            raise ValueError("found mean or std beside dtype uint8, expected neither: uint8 rows hold the levels")
        return self

    @property
    def row_shape(self) -> tuple[int, int, int]:
        """Shape of one row, without the batch dimension."""
        return (3, self.crop, self.crop) if self.layout == "CHW" else (self.crop, self.crop, 3)
