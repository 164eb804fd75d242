"""Many problems at once: whoever reads a configuration tells everything that is wrong with it, not the first thing."""

from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

from models.errors import ModelsError, SeveralProblemsError

P = ParamSpec("P")
T = TypeVar("T")


class Problems:
    """What is wrong so far, each sentence once, in the order in which it was found."""

    def __init__(self) -> None:
        self._by_sentence: dict[str, ModelsError] = {}

    def __bool__(self) -> bool:
        return bool(self._by_sentence)

    def add(self, *errors: ModelsError) -> None:
        """Remember problems; several that were raised as one are taken apart."""
        for error in errors:
            for problem in problems_of(error):
                self._by_sentence.setdefault(str(problem), problem)

    def add_all(self, errors: Iterable[ModelsError]) -> None:
        """Remember what a check yields."""
        self.add(*errors)

    def attempt(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The answer of `step`; None, and its problem remembered, if it raises ModelsError."""
        try:
            return step(*args, **kwargs)
        except ModelsError as error:
            self.add(error)
            return None

    def found(self) -> tuple[ModelsError, ...]:
        """All of them."""
        return tuple(self._by_sentence.values())

    def raise_any(self) -> None:
        """Raise if there is a problem: a single one as it is.

        Raises:
            ModelsError: The only problem.
            SeveralProblemsError: All of them.
        """
        if self:
            raise as_one(self.found())

    def checked(self, value: T | None) -> T:
        """A value of `attempt`, which is there if there are no problems.

        Raises:
            ModelsError: As `raise_any`.
        """
        self.raise_any()
        if value is None:
            raise RuntimeError("found a value that is missing without a problem, expected one of the two")
        return value


def as_one(problems: Sequence[ModelsError]) -> ModelsError:
    """One error for one or more problems: a single one as it is."""
    return problems[0] if len(problems) == 1 else SeveralProblemsError(problems)


def problems_of(error: ModelsError) -> tuple[ModelsError, ...]:
    """The problems in an error, which is one unless it stands for several."""
    return error.problems if isinstance(error, SeveralProblemsError) else (error,)
