"""How the fake TensorRT builds plans, see `fake_api`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from typing_extensions import override

from backends.tensorrt_engine import api as real
from backends.tensorrt_engine.fake_models import FakeBuilderFlag, FakeModel, FakePool, report


class FakeTimingCache(real.TimingCache):
    """Counts the builds that it has seen."""

    def __init__(self, content: bytes) -> None:
        self.builds = int(content or b"0")

    @override
    def serialize(self) -> real.HostMemory:
        return cast("real.HostMemory", str(self.builds).encode())


@dataclass
class FakeProfile(real.OptimizationProfile):
    """Shapes by input."""

    shapes: dict[str, Sequence[Sequence[int]]] = field(default_factory=dict)

    @override
    def set_shape(self, input: str, min: tuple[int, ...], opt: tuple[int, ...], max: tuple[int, ...]) -> None:
        self.shapes[input] = (min, opt, max)


@dataclass
class FakeBuilderConfig(real.BuilderConfig):
    """What was configured."""

    workspace_bytes: int = 0
    cleared: list[FakeBuilderFlag] = field(default_factory=list)
    timings: FakeTimingCache | None = None
    profiles: list[FakeProfile] = field(default_factory=list)

    @override
    def set_memory_pool_limit(self, pool: FakePool, pool_size: int, /) -> None:
        self.workspace_bytes = pool_size

    @override
    def clear_flag(self, flag: FakeBuilderFlag, /) -> None:
        self.cleared.append(flag)

    @override
    def create_timing_cache(self, serialized_timing_cache: bytes, /) -> FakeTimingCache:
        return FakeTimingCache(serialized_timing_cache)

    @override
    def set_timing_cache(self, cache: real.TimingCache, ignore_mismatch: bool, /) -> bool:
        self.timings = cast("FakeTimingCache", cache)
        return True

    @override
    def get_timing_cache(self) -> FakeTimingCache | None:
        return self.timings

    @override
    def add_optimization_profile(self, profile: real.OptimizationProfile, /) -> int:
        self.profiles.append(cast("FakeProfile", profile))
        return len(self.profiles) - 1


@dataclass
class FakeNetwork(real.Network):
    """What the parser read."""

    model: FakeModel = field(default_factory=FakeModel)

    @property
    @override
    def num_inputs(self) -> int:
        return len(self.model.inputs)

    @override
    def get_input(self, index: int, /) -> real.NetworkTensor:
        return self.model.inputs[index]


@dataclass(frozen=True)
class FakeParserError(real.ParserError):
    """Why a file cannot be parsed."""

    text: str

    @override
    def desc(self) -> str:
        return self.text


class FakeParser(real.OnnxParser):
    """Reads files of `FakeModel.to_bytes`."""

    def __init__(self, network: real.Network) -> None:
        self._network = cast("FakeNetwork", network)
        self._errors: list[FakeParserError] = []

    @property
    @override
    def num_errors(self) -> int:
        return len(self._errors)

    @override
    def parse_from_file(self, model: str, /) -> bool:
        try:
            self._network.model = FakeModel.from_bytes(Path(model).read_bytes())
        except (ValueError, KeyError, TypeError):
            self._errors.append(FakeParserError(f"Failed to parse the file {model}"))
        return not self._errors

    @override
    def get_error(self, index: int, /) -> real.ParserError:
        return self._errors[index]


@dataclass(kw_only=True)
class Workshop:
    """Where the fake builds.

    Attributes:
        version: TensorRT that builds.
        compute: Compute capability that is built for.
        build_failure: Text with which builds fail; empty for none.
        builds: Engines built.
        configs: Of all builds.
        network_flags: Of all networks.
    """

    version: str = "11.4.0"
    compute: str = "9.0"
    build_failure: str = ""
    builds: int = 0
    configs: list[FakeBuilderConfig] = field(default_factory=list)
    network_flags: list[int] = field(default_factory=list)


class FakeBuilder(real.Builder):
    """Builds plans for the workshop's version and compute capability."""

    def __init__(self, workshop: Workshop, logger: Any) -> None:
        self._workshop = workshop
        self._logger = logger

    @override
    def create_network(self, flags: int, /) -> real.Network:
        self._workshop.network_flags.append(flags)
        return FakeNetwork()

    @override
    def create_builder_config(self) -> FakeBuilderConfig:
        self._workshop.configs.append(FakeBuilderConfig())
        return self._workshop.configs[-1]

    @override
    def create_optimization_profile(self) -> FakeProfile:
        return FakeProfile()

    @override
    def build_serialized_network(self, network: real.Network, config: real.BuilderConfig, /) -> real.HostMemory | None:
        if self._workshop.build_failure:
            report(self._logger, self._workshop.build_failure)
            return None
        self._workshop.builds += 1
        model, configured = cast("FakeNetwork", network).model, cast("FakeBuilderConfig", config)
        if configured.timings:
            configured.timings.builds += 1
        plan = FakeModel(
            inputs=model.inputs,
            outputs=model.outputs,
            profiles=tuple(profile.shapes for profile in configured.profiles),
            version=self._workshop.version,
            compute=self._workshop.compute,
        )
        return cast("real.HostMemory", plan.to_bytes())
