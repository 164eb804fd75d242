"""Many problems at once."""

import pytest

from models.errors import ConfigError, ModelsError, RepositoryError, SeveralProblemsError
from models.problems import Problems, as_one, problems_of


def error(field: str) -> ConfigError:
    return ConfigError(source="m/config.pbtxt", line=3, field=field, found="a", expected="b")


def fail(problem: ModelsError) -> int:
    raise problem


def test_each_sentence_is_kept_once_and_in_order() -> None:
    problems = Problems()

    problems.add_all([error("x"), RepositoryError("m: gone"), error("x")])

    assert [str(problem) for problem in problems.found()] == [str(error("x")), "m: gone"]


def test_several_that_come_as_one_are_taken_apart() -> None:
    problems = Problems()

    answer = problems.attempt(fail, SeveralProblemsError([error("x"), error("y")]))

    assert answer is None
    assert [str(problem) for problem in problems.found()] == [str(error("x")), str(error("y"))]


def test_a_single_problem_is_raised_as_it_is() -> None:
    problems = Problems()
    problems.add(error("x"))

    with pytest.raises(ConfigError, match="x: found a, expected b"):
        problems.raise_any()


def test_several_are_raised_together() -> None:
    raised = as_one([error("x"), error("y")])

    assert str(raised) == f"{error('x')}; {error('y')}"
    assert len(problems_of(raised)) == 2


def test_without_problems_a_value_is_given_back() -> None:
    assert Problems().checked(7) == 7


def test_a_missing_value_without_a_problem_is_a_defect() -> None:
    with pytest.raises(RuntimeError, match="missing without a problem"):
        Problems().checked(None)
