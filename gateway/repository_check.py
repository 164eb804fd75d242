"""What would keep models from being served, found without serving them: no engine is imported, nothing is loaded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from backends.errors import LoadError
from backends.parameter_checks import parameter_problem
from backends.placing import Machine, Site, place
from backends.registry import find_backend
from gateway.policies import create_scheduler
from models.archives.store_config import STORE_CONFIG
from models.drafts import Drafts
from models.ensembles import check_ensemble
from models.errors import ConfigError
from models.findings import Finding, Severity, finding_of, unread_rest, warning_of
from models.golden import read_golden, read_photo
from models.model_directory import DirectoryPlace
from models.model_entry import ModelEntry
from models.places import Place
from models.spec import ModelSpec
from models.tensors import element_count

_NOTHING = Finding(
    severity=Severity.WARNING,
    model="",
    found="no model",
    expected="a directory with one subdirectory a model, or with archives of TorchServe",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of a check.

    Attributes:
        models: What was checked: the version numbers that can be read, by model.
        findings: By model, errors first.
    """

    models: Mapping[str, Sequence[int]]
    findings: Sequence[Finding]

    def count(self, severity: Severity) -> int:
        """How many findings are as severe as that."""
        return sum(finding.severity is severity for finding in self.findings)


def check_places(places: Mapping[str, Place], machine: Machine, only: str | None = None) -> Report:
    """Read all models and report on all, or one, of them. Blocks on file reads.

    Args:
        places: Where the models are, by name.
        machine: What they would run on.
        only: The name of the only model to report on; others are read as far as it consists of them.
    """
    entries = {name: place.read() for name, place in places.items()}
    chosen = {name: entry for name, entry in entries.items() if only in (None, name)}
    findings = [] if places else [_NOTHING]
    for name, entry in chosen.items():
        of_model = [*_of_entry(entry), *_of_copying(name, places[name])]
        drafts = _drafts(entry, places[name])
        of_model += _of_unchecked(entry, drafts)
        for spec in (*entry.versions, *drafts.specs):
            of_model += _of_version(spec, machine, entries)
        findings += sorted(_each_once(of_model), key=_order)
    if only is not None:
        findings = [finding for finding in findings if finding.model == only]
    models = {name: [spec.version for spec in entry.versions] for name, entry in chosen.items()}
    return Report(models=models, findings=findings)


def _of_entry(entry: ModelEntry) -> Iterator[Finding]:
    for problem in entry.problems:
        yield finding_of(entry.name, problem)
        rest = unread_rest(entry.name, problem)
        if rest is not None:
            yield rest
    for note in entry.notes:
        finding = warning_of(entry.name, note)
        # A store's notes come with its first model, and are not about it.
        yield replace(finding, model="") if finding.file == STORE_CONFIG else finding


def _of_copying(name: str, place: Place) -> Iterator[Finding]:
    file = place.unfinished()
    if file:
        found = "a file that is still being copied, going by its name"
        fix = "check again when it is there, or remove it"
        yield Finding(severity=Severity.WARNING, model=name, file=f"{name}/{file}", found=found, fix=fix)


def _drafts(entry: ModelEntry, place: Place) -> Drafts:
    return place.drafts(entry.broken) if entry.broken and isinstance(place, DirectoryPlace) else Drafts()


def _of_unchecked(entry: ModelEntry, drafts: Drafts) -> Iterator[Finding]:
    if drafts.unchecked:
        found = f"what was not checked further, because of the errors: {', '.join(drafts.unchecked)}"
        fix = "correct the errors and check it again"
        yield Finding(severity=Severity.WARNING, model=entry.name, file=entry.name, found=found, fix=fix)


def _of_version(spec: ModelSpec, machine: Machine, entries: Mapping[str, ModelEntry]) -> Iterator[Finding]:
    if spec.steps:
        for problem in check_ensemble(spec, _finder(entries)):
            yield finding_of(spec.name, problem)
        return
    yield from _of_policy(spec)
    yield from _of_engine(spec)
    yield from _of_parameters(spec, machine)
    yield from _of_instances(spec, machine)
    yield from _of_labels(spec)
    yield from _of_golden(spec)


def _finder(entries: Mapping[str, ModelEntry]) -> Callable[[str, int | None], ModelSpec | None]:
    def find(model: str, version: int | None) -> ModelSpec | None:
        specs = entries[model].versions if model in entries else ()
        return next((spec for spec in reversed(specs) if version in (None, spec.version)), None)

    return find


def _of_policy(spec: ModelSpec) -> Iterator[Finding]:
    try:
        create_scheduler(spec)
    except ConfigError as error:
        yield finding_of(spec.name, error)


def _of_engine(spec: ModelSpec) -> Iterator[Finding]:
    backend = find_backend(spec)
    if backend.is_installed:
        return
    found = f'backend "{spec.backend}", whose package {backend.package} is not installed here'
    yield _at(spec, "backend", Severity.WARNING, found=found, fix=f"install {backend.package} where it is served")


def _of_parameters(spec: ModelSpec, machine: Machine) -> Iterator[Finding]:
    # What cannot be placed asks for a GPU; its parameters for it can be wrong all the same.
    devices = {site.placement.device for site in _sites(spec, machine)} or {"gpu0"}
    problems = [parameter_problem(spec, replace(machine.defaults, device=device)) for device in sorted(devices)]
    for problem in filter(None, problems):
        yield _at(spec, _path_in(spec, str(problem)), Severity.ERROR, **_sentence(spec, problem))


def _sites(spec: ModelSpec, machine: Machine) -> Sequence[Site]:
    """Where its instances would be; nowhere, if they cannot be where they should."""
    try:
        return place(spec, machine)
    except LoadError:
        return ()


def _path_in(spec: ModelSpec, sentence: str) -> str:
    """The field path of the parameter or accelerator that a backend's sentence names in quotes."""
    execution = spec.execution
    for kind, accelerators in (("gpu", execution.gpu_accelerators), ("cpu", execution.cpu_accelerators)):
        for index, accelerator in enumerate(accelerators):
            if f"accelerator '{accelerator.name}'" in sentence:
                path = f"optimization.execution_accelerators.{kind}_execution_accelerator[{index}]"
                named = next((name for name in accelerator.parameters if f"'{name}'" in sentence), None)
                return f"{path}.name" if named is None else f"{path}.parameters.{named}"
    name = next((name for name in spec.parameters if f"'{name}'" in sentence), None)
    if "runs on NVIDIA GPUs only" in sentence:
        return "instance_group[0].kind"
    return "parameters" if name is None else f"parameters.{name}.string_value"


def _of_instances(spec: ModelSpec, machine: Machine) -> Iterator[Finding]:
    """Group by group, because each may ask for devices that are not there."""
    for index, group in enumerate(spec.instance_groups):
        try:
            place(replace(spec, instance_groups=(group,)), machine)
        except LoadError as error:
            is_host = "[execution] host" in str(error)
            path = "shoal.execution.host" if is_host else f"instance_group[{index}].kind"
            yield _at(spec, path, Severity.ERROR, **_sentence(spec, error))


def _of_labels(spec: ModelSpec) -> Iterator[Finding]:
    for index, output in enumerate(spec.outputs):
        if output.labels and not output.has_variable_dims and len(output.labels) != element_count(output.dims):
            found = f"{len(output.labels)} labels for {element_count(output.dims)} classes"
            path = f"output[{index}].label_filename"
            yield _at(spec, path, Severity.WARNING, found=found, expected="one label for each class")


def _of_golden(spec: ModelSpec) -> Iterator[Finding]:
    """Whether what golden photographs are compared with is there; the comparison itself needs the model."""
    if spec.golden is None:
        return
    try:
        photos = read_golden(spec.golden).photos
    except (ConfigError, OSError) as error:
        yield finding_of(spec.name, error)
        return
    for photo in photos:
        try:
            read_photo(spec.golden, photo)
        except (ConfigError, OSError) as error:
            yield finding_of(spec.name, error)


def _at(spec: ModelSpec, path: str, severity: Severity, *, found: str, expected: str = "", fix: str = "") -> Finding:
    """A finding about a value, at the place where the value comes from."""
    file, _, line = spec.sources.get(path, "").rpartition(":")
    if not line.isdecimal():
        file = "shoal.toml" if path.startswith("shoal.") else "config.pbtxt"
    return Finding(
        severity=severity,
        model=spec.name,
        version=None,
        file=f"{spec.name}/{file}",
        line=int(line) if line.isdecimal() else None,
        field=path.removeprefix("shoal."),
        found=found,
        expected=expected,
        fix=fix,
    )


def _sentence(spec: ModelSpec, problem: LoadError) -> dict[str, str]:
    """The parts of a backend's sentence, without the model's name."""
    parts = finding_of(spec.name, problem)
    found = parts.found
    for prefix in (f"model '{spec.name}' version {spec.version}: ", f"model '{spec.name}': "):
        found = found.removeprefix(prefix)
    found, _, fix = found.partition("; ")
    found, _, expected = found.partition(", expected ")
    return {"found": found, "expected": expected, "fix": fix}


def _each_once(findings: Sequence[Finding]) -> list[Finding]:
    """What is wrong with several versions in the same place is told once."""
    return list(dict.fromkeys(findings))


def _order(finding: Finding) -> tuple[bool, str, int]:
    return finding.severity is not Severity.ERROR, finding.file, finding.line or 0
