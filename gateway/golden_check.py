"""A version's golden photographs, sent through it before it may answer anybody."""

import asyncio
from typing import Protocol

from gateway.classification import top_predictions
from gateway.decoding import Decoder
from models.errors import GoldenMismatchError, ImageError, RepositoryError
from models.golden import GoldenPhoto, check_row, check_scores, read_golden, read_photo
from models.inference import Array, Tensors, Timing
from models.preprocessing import Preprocessing
from models.spec import ModelSpec


class Classifier(Protocol):
    """A version that can answer encoded images, such as a `Served`."""

    @property
    def spec(self) -> ModelSpec:
        """What is served."""
        ...

    async def infer_image(self, image: bytes, how: Preprocessing, timeout_ns: int | None) -> tuple[Tensors, Timing]:
        """Decode and run one encoded image."""
        ...


async def check_golden(served: Classifier, decoder: Decoder) -> None:
    """Compare a version's rows and answers with what was recorded; nothing happens for one without golden photographs.

    Args:
        served: Warm, and running.
        decoder: The one that it uses.

    Raises:
        GoldenMismatchError: Another row, or other classes; names the photograph and the likely reason.
        ConfigError: The file or a photograph is missing or damaged.
        RepositoryError: A file cannot be read.
        BackendError: The model fails on a photograph.
        BatchingError: The version is overloaded or stopping.
    """
    spec, rules, how = served.spec, served.spec.golden, served.spec.preprocessing
    if rules is None or how is None:
        return
    try:
        golden = await asyncio.to_thread(read_golden, rules)
        for photo in golden.photos:
            image = await asyncio.to_thread(read_photo, rules, photo)
            problem = await _problem(served, decoder, photo, image)
            if problem is not None:
                raise GoldenMismatchError(spec.name, spec.version, problem)
    except OSError as error:
        raise RepositoryError(f"{spec.name}: golden photographs cannot be read: {error.strerror}") from error


async def _problem(served: Classifier, decoder: Decoder, photo: GoldenPhoto, image: bytes) -> str | None:
    spec, rules, how = served.spec, served.spec.golden, served.spec.preprocessing
    if rules is None or how is None:
        return None
    try:
        row = await decoder.decode(image, how)
    except ImageError as error:
        return f"photograph '{photo.file}': {error}"
    problem = check_row(photo, row, how, rules.tolerance_levels)
    if problem is None and str(spec.version) in photo.top:
        outputs, _ = await served.infer_image(image, how, None)
        scores = outputs[spec.scores_output.name]
        problem = check_scores(photo, spec.version, probabilities(scores, how), rules.tolerance_probability)
    return problem


def probabilities(scores: Array, how: Preprocessing) -> list[float]:
    """The probability of each class, in their order."""
    ranked = top_predictions(scores, (), scores.size, how.output)
    return [prediction.probability for prediction in sorted(ranked, key=lambda prediction: prediction.index)]
