"""Ensembles: the graph that the steps of one make, in which order it runs, and whether its edges fit.

An edge is an ensemble tensor from the one who makes it (an input of the ensemble, or an output of a step) to each one
who takes it (an input of a step, or an output of the ensemble). Every complaint names its edge.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from models.config_lines import ConfigLines
from models.errors import ConfigError
from models.spec import EnsembleStep, ModelSpec, Oversize
from models.tensors import TensorSpec

Find = Callable[[str, int | None], ModelSpec | None]
"""The version of a model that a step would get, or None if there is none; version None is the preferred one."""

_STEPS = "ensemble_scheduling.step"
_STEP_OF_PATH = re.compile(r"(?<=.)[.\[]")


@dataclass(frozen=True, slots=True)
class Plan:
    """Which step waits for which, by their places in `ModelSpec.steps`.

    Attributes:
        levels: The steps of a level need only what those of the levels before make. Steps of a cycle, and those behind
            one, are in none.
        waits: By step, for how many other steps it waits.
        followers: By step, those that wait for it.
    """

    levels: tuple[tuple[int, ...], ...]
    waits: tuple[int, ...]
    followers: tuple[tuple[int, ...], ...]


def plan(spec: ModelSpec) -> Plan:
    """The order of an ensemble's steps (Kahn's algorithm, level by level)."""
    makers = {tensor: index for index, step in enumerate(spec.steps) for tensor in step.outputs.values()}
    before = [{makers[tensor] for tensor in step.inputs.values() if tensor in makers} for step in spec.steps]
    followers = [[after for after, needed in enumerate(before) if step in needed] for step in range(len(before))]
    waits = tuple(len(needed) for needed in before)
    levels: list[tuple[int, ...]] = []
    level = tuple(step for step, count in enumerate(waits) if count == 0)
    missing = list(waits)
    while level:
        levels.append(level)
        following = [after for step in level for after in followers[step]]
        for after in following:
            missing[after] -= 1
        level = tuple(after for after in sorted(set(following)) if missing[after] == 0)
    return Plan(tuple(levels), waits, tuple(map(tuple, followers)))


def dependencies(spec: ModelSpec) -> tuple[tuple[str, int | None], ...]:
    """The models and versions that an ensemble consists of, each once, in the order of its steps."""
    return tuple(dict.fromkeys((step.model, step.version) for step in spec.steps))


def check_ensemble(spec: ModelSpec, find: Find) -> list[ConfigError]:
    """Everything that keeps an ensemble from running.

    Args:
        spec: The ensemble.
        find: Gives the models that it consists of, as they are or will be served.
    """
    return [*check_graph(spec), *_Composition(spec, find).problems()]


def check_graph(spec: ModelSpec) -> list[ConfigError]:
    """What is wrong with the steps, whatever their models are; part of `check_ensemble`."""
    graph = _Graph(spec)
    return [*graph.made_twice(), *graph.made_by_nobody(), *graph.never_used(), *graph.cycle()]


def _lines(spec: ModelSpec) -> ConfigLines:
    """Where the fields stand, as far as the specification knows; a block stands where its first value does."""
    lines: dict[str, int] = {}
    for path, source in spec.sources.items():
        file, _, line = source.rpartition(":")
        if file == "config.pbtxt" and line.isdecimal():
            for end in (*(match.start() for match in _STEP_OF_PATH.finditer(path)), len(path)):
                lines[path[:end]] = min(int(line), lines.get(path[:end], int(line)))
    return ConfigLines(source=f"{spec.name}/config.pbtxt", line_by_field=lines)


def _step(spec: ModelSpec, index: int) -> str:
    return f"step {index + 1} '{spec.steps[index].model}'"


def _entry(index: int, kind: str, name: str) -> str:
    """Field path of an entry of a step's map, `kind` being ``input`` or ``output``."""
    return f"{_STEPS}[{index}].{kind}_map.{name}"


class _Graph:
    """Ensemble tensors with their makers and takers, without the steps' models."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._lines = _lines(spec)
        self._makers: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)  # by tensor: words, field path
        for index, tensor in enumerate(spec.inputs):
            self._makers[tensor.name].append((f"ensemble input '{tensor.name}'", f"input[{index}]"))
        for index, step in enumerate(spec.steps):
            for output, name in step.outputs.items():
                words = f"{_step(spec, index)} output '{output}'"
                self._makers[name].append((words, _entry(index, "output", output)))
        self._taken = {name for step in spec.steps for name in step.inputs.values()}

    def made_twice(self) -> Iterator[ConfigError]:
        for name, makers in self._makers.items():
            for words, path in makers[1:]:
                expected = f"a tensor that nobody else makes: {makers[0][0]} makes it already"
                yield self._lines.error(path, found=f"{words} -> ensemble tensor '{name}'", expected=expected)

    def made_by_nobody(self) -> Iterator[ConfigError]:
        known = ", ".join(f"'{name}'" for name in self._makers) or "none"
        for index, step in enumerate(self._spec.steps):
            for name, tensor in step.inputs.items():
                if tensor not in self._makers:
                    found = f"{_step(self._spec, index)} input '{name}' <- ensemble tensor '{tensor}', made by nobody"
                    expected = f"an input of the ensemble or an output of a step: {known}"
                    yield self._lines.error(_entry(index, "input", name), found=found, expected=expected)
        made = {name for step in self._spec.steps for name in step.outputs.values()}
        for index, output in enumerate(self._spec.outputs):
            if output.name not in made:
                found = f"ensemble output '{output.name}', made by no step"
                expected = f'output_map {{ key: "..." value: "{output.name}" }} in one of the steps'
                yield self._lines.error(f"output[{index}]", found=found, expected=expected)

    def never_used(self) -> Iterator[ConfigError]:
        asked = {output.name for output in self._spec.outputs}
        for name, makers in self._makers.items():
            if name not in self._taken and name not in asked:
                words, path = makers[0]
                is_input = path.startswith("input[")
                found = (
                    f"{words}, used by no step" if is_input else f"{words} -> ensemble tensor '{name}', used by nobody"
                )
                expected = "an input_map that names it, or no such " + ("input" if is_input else "entry in output_map")
                yield self._lines.error(path, found=found, expected=expected)

    def cycle(self) -> Iterator[ConfigError]:
        """One for all steps that wait for themselves, with every edge on the way round."""
        order = plan(self._spec)
        stuck = set(range(len(self._spec.steps))).difference(*order.levels)
        if not stuck:
            return
        makers = {name: index for index, step in enumerate(self._spec.steps) for name in step.outputs.values()}
        way: list[int] = [min(stuck)]
        edges: list[str] = []
        while way.count(way[-1]) == 1:  # against the arrows: every stuck step has a stuck one before it
            step = self._spec.steps[way[-1]]
            name, tensor = next((name, it) for name, it in step.inputs.items() if makers.get(it) in stuck)
            edges.append(_edge(self._spec, way[-1], name, tensor, _step(self._spec, makers[tensor])))
            way.append(makers[tensor])
        round_trip = "; ".join(edges[way.index(way[-1]) :])
        expected = "steps that do not wait for themselves"
        yield self._lines.error(f"{_STEPS}[{way[-1]}]", found=f"a cycle: {round_trip}", expected=expected)


def _edge(spec: ModelSpec, index: int, name: str, tensor: str, maker: str) -> str:
    return f"{_step(spec, index)} input '{name}' <- ensemble tensor '{tensor}' of {maker}"


@dataclass(frozen=True, slots=True)
class _End:
    """Who makes an ensemble tensor, and as what."""

    words: str
    tensor: TensorSpec
    batched: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """With the batch dimension, which any other tensor may have as a variable one (as Triton compares)."""
        return (-1, *self.tensor.dims) if self.batched else self.tensor.dims

    def differs_by_one_row_from(self, other: "_End") -> bool:
        """One side has no batch dimension, and what it has is one row of the other (which Triton accepts, too)."""
        return self.batched != other.batched and _fit(self.tensor.dims, other.tensor.dims)


class _Composition:
    """An ensemble beside the models that it consists of."""

    def __init__(self, spec: ModelSpec, find: Find) -> None:
        self._spec = spec
        self._find = find
        self._lines = _lines(spec)
        self._models = [None if _is_of(step, spec) else find(step.model, step.version) for step in spec.steps]
        self._made = {
            tensor.name: _End(f"ensemble input '{tensor.name}'", tensor, spec.has_batch_dimension)
            for tensor in spec.inputs
        }
        for index, (step, model) in enumerate(zip(spec.steps, self._models, strict=True)):
            declared = {tensor.name: tensor for tensor in model.outputs} if model else {}
            for name, it in step.outputs.items():
                if model and name in declared:
                    self._made[it] = _End(_step(spec, index), declared[name], model.has_batch_dimension)

    def problems(self) -> Iterator[ConfigError]:
        for index, model in enumerate(self._models):
            yield from self._of_model(index, model)
            if model is not None:
                yield from self._of_rows(index, model)
                yield from self._of_names(index, model)
                yield from self._of_inputs(index, model)
        yield from self._of_outputs()

    def _of_model(self, index: int, model: ModelSpec | None) -> Iterator[ConfigError]:
        step = self._spec.steps[index]
        way = _way_back(self._spec, step, self._find)
        if way:
            found = f"{_step(self._spec, index)}, which leads back: {' -> '.join((self._spec.name, *way))}"
            expected = "ensembles that do not contain themselves"
            yield self._lines.error(f"{_STEPS}[{index}].model_name", found=found, expected=expected)
        elif model is None:
            version = "" if step.version is None else f" version {step.version}"
            found = f"{_step(self._spec, index)}: no model '{step.model}'{version} that can be served"
            field = "model_name" if step.version is None else "model_version"
            yield self._lines.error(f"{_STEPS}[{index}].{field}", found=found, expected="a model of the repository")

    def _of_rows(self, index: int, model: ModelSpec) -> Iterator[ConfigError]:
        """Triton's rule, except that a model that splits what is too large may have smaller batches."""
        most, theirs = self._spec.max_batch_rows, model.max_batch_rows
        splits = theirs > 0 and model.batching.oversize is Oversize.SPLIT
        if theirs < most and not splits:
            found = f"max_batch_size {most}, but {_step(self._spec, index)} has {theirs}"
            expected = f'at most {theirs}, or [batching] oversize = "split" in {model.name}/shoal.toml'
            if theirs == 0:
                expected = f"0, because '{model.name}' has no batch dimension, or a batch dimension there"
            yield self._lines.error("max_batch_size", found=found, expected=expected)

    def _of_names(self, index: int, model: ModelSpec) -> Iterator[ConfigError]:
        step = self._spec.steps[index]
        for kind, given, declared in (("input", step.inputs, model.inputs), ("output", step.outputs, model.outputs)):
            names = [tensor.name for tensor in declared]
            for name in (name for name in given if name not in names):
                arrow = "<-" if kind == "input" else "->"
                found = f"{_step(self._spec, index)} {kind} '{name}' {arrow} ensemble tensor '{given[name]}'"
                expected = f"an {kind} of model '{model.name}': {', '.join(names)}"
                yield self._lines.error(_entry(index, kind, name), found=found, expected=expected)
        for tensor in model.inputs:
            if not tensor.optional and tensor.name not in step.inputs:
                found = f"{_step(self._spec, index)} input '{tensor.name}' <- nothing"
                expected = f'input_map {{ key: "{tensor.name}" value: "<an ensemble tensor>" }}'
                yield self._lines.error(f"{_STEPS}[{index}]", found=found, expected=expected)

    def _of_inputs(self, index: int, model: ModelSpec) -> Iterator[ConfigError]:
        declared = {tensor.name: tensor for tensor in model.inputs}
        for name, it in self._spec.steps[index].inputs.items():
            if name in declared and it in self._made:
                maker = self._made[it]
                edge = _edge(self._spec, index, name, it, maker.words)
                taker = _End(edge, declared[name], model.has_batch_dimension)
                yield from self._mismatch(_entry(index, "input", name), maker, taker)

    def _of_outputs(self) -> Iterator[ConfigError]:
        for index, output in enumerate(self._spec.outputs):
            if output.name in self._made:
                maker = self._made[output.name]
                words = f"ensemble output '{output.name}' <- {maker.words}"
                yield from self._mismatch(
                    f"output[{index}]", maker, _End(words, output, self._spec.has_batch_dimension)
                )

    def _mismatch(self, path: str, maker: _End, taker: _End) -> Iterator[ConfigError]:
        made, taken = maker.tensor.data_type.config_name, taker.tensor.data_type.config_name
        if made != taken:
            yield self._lines.error(path, found=f"{taker.words}: {made}", expected=f"{taken} at both ends")
        elif not (_fit(maker.shape, taker.shape) or maker.differs_by_one_row_from(taker)):
            found = f"{taker.words}: shape {list(maker.shape)}"
            yield self._lines.error(path, found=found, expected=f"shape {list(taker.shape)}, -1 fits any")
        if maker.tensor.optional and not taker.tensor.optional:
            found = f"{taker.words}, which requests may leave out"
            yield self._lines.error(path, found=found, expected="an optional input there, or a required one here")


def _fit(made: Sequence[int], taken: Sequence[int]) -> bool:
    """What is variable is compared when the tensor is there."""
    return len(made) == len(taken) and all(-1 in pair or pair[0] == pair[1] for pair in zip(made, taken, strict=True))


def _is_of(step: EnsembleStep, spec: ModelSpec) -> bool:
    return step.model == spec.name and step.version in (None, spec.version)


def _way_back(spec: ModelSpec, step: EnsembleStep, find: Find) -> tuple[str, ...]:
    """The models on the way from a step back to its own ensemble; empty if there is none."""
    came_from: dict[tuple[str, int | None], tuple[str, ...]] = {(step.model, step.version): (step.model,)}
    waiting = [step]
    while waiting:
        here = waiting.pop()
        way = came_from[here.model, here.version]
        if _is_of(here, spec):
            return way
        model = find(here.model, here.version)
        for inner in model.steps if model else ():
            if (inner.model, inner.version) not in came_from:
                came_from[inner.model, inner.version] = (*way, inner.model)
                waiting.append(inner)
    return ()
