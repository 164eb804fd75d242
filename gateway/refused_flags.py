"""Flags of tritonserver and torchserve that `shoal serve` has not: each is answered by name, none as a typing mistake.

A flag that would change what the server does is refused with what to do instead. One that changes nothing here, or
whose value asks for what is so anyway, is taken with a note: a command line written for these servers goes on working.
"""

from collections.abc import Sequence
from typing import NamedTuple

import typer
from typer.core import TyperCommand
from typing_extensions import override

from gateway.flags import with_switch_values


class Unoffered(NamedTuple):
    """Some flags that are not offered.

    Attributes:
        names: The flags; an asterisk at the end stands for any rest.
        sentence: Why, and what to do instead.
        harmless: Values that are taken with a note; None: all are.
    """

    names: tuple[str, ...]
    sentence: str
    harmless: tuple[str, ...] | None = ()


_OFF = ("false", "0")
_ON = ("true", "1")

UNOFFERED = (
    Unoffered(
        ("--grpc-infer-thread-count", "--grpc-infer-allocation-pool-size", "--grpc-max-response-pool-size"),
        "calls need neither threads nor pools of their own",
        None,
    ),
    Unoffered(("--allow-http",), "HTTP is always served", _ON),
    Unoffered(
        ("--reuse-http-port", "--reuse-grpc-port"), "one server has the port: start several on ports of their own", _OFF
    ),
    Unoffered(("--allow-sagemaker", "--allow-vertex-ai"), "it has no paths of its own: use those of v2", _OFF),
    Unoffered(("--sagemaker-*", "--vertex-ai-*"), "it has no paths of its own: use those of v2"),
    Unoffered(("--cache-config", "--cache-directory"), "there is no response cache: put one in front of the server"),
    Unoffered(("--response-cache-byte-size",), "there is no response cache: put one in front of the server", ("0",)),
    Unoffered(("--trace-config",), "there is no tracing: --log-requests=true gives a line a request", ("level=off",)),
    Unoffered(("--trace-*",), "there is no tracing: --log-requests=true gives a line a request"),
    Unoffered(("--backend-config",), "engines are configured a model: see docs/engines.md"),
    Unoffered(
        ("--backend-directory", "--repoagent-directory"), "backends are installed with the server: none is loaded"
    ),
    Unoffered(
        ("--disable-auto-complete-config",),
        "what config.pbtxt leaves out is completed, what it says stays: leave the flag out",
        _OFF,
    ),
    Unoffered(
        ("--strict-model-config",),
        "what config.pbtxt leaves out is completed, what it says stays: leave the flag out",
        _OFF,
    ),
    Unoffered(("--model-config-name",), "only config.pbtxt is read: copy the wanted one there"),
    Unoffered(
        ("--model-load-retry-count",), "a model that failed is loaded again when it changes, or on demand", ("0",)
    ),
    Unoffered(("--model-load-gpu-limit",), "a model that finds too little memory of its GPU is told when it is loaded"),
    Unoffered(("--model-namespacing",), "names are unique across repositories: rename one of the models", _OFF),
    Unoffered(("--host-policy",), "there are no host policies: cores are divided among the models"),
    Unoffered(("--metrics-address",), "metrics are on --http-address too, on their own port"),
    Unoffered(("--metrics-config",), "the metrics cannot be changed: see docs/reference.md"),
    Unoffered(("--log-file",), "it logs to its standard error: redirect that"),
    Unoffered(
        ("--log-info", "--log-warning", "--log-error"),
        "they are logged from the start: POST /v2/logging changes that",
        _ON,
    ),
    Unoffered(
        ("--allow-gpu-metrics", "--allow-cpu-metrics", "--metrics-interval-ms"),
        "what there is to measure is measured when somebody asks",
        None,
    ),
    Unoffered(
        (
            "--pinned-memory-pool-byte-size",
            "--cuda-memory-pool-byte-size",
            "--cuda-virtual-address-size",
            "--enable-peer-access",
        ),
        "memory is taken as it is needed",
        None,
    ),
    Unoffered(("--http-thread-count", "--buffer-manager-thread-count"), "it has as many threads as it has cores", None),
    Unoffered(("--min-supported-compute-capability",), "the engines decide which GPUs they can use", None),
    # From here on torchserve's.
    Unoffered(("--start", "--foreground"), "it serves at once, in the foreground", None),
    Unoffered(("--stop",), "the server ends with Ctrl-C, or SIGTERM to its process"),
    Unoffered(
        ("--models",),
        "all archives of the store are served: name some with load_models in its config.properties, or with "
        "--model-control-mode=explicit and --load-model",
        ("all",),
    ),
    Unoffered(("--ts-config",), "config.properties is read where the model store is: put it into the store"),
    Unoffered(("--ncs", "--no-config-snapshots"), "there are no snapshots of the configuration", None),
    Unoffered(("--enable-model-api",), "--model-control-mode=explicit allows to load and unload models"),
    Unoffered(("--disable-token-auth",), "a token is asked for with --control-token-file only", None),
    Unoffered(
        ("--log-config", "--log4j2-config", "--cpp-log-config"), "--log-format and --log-verbose say what is logged"
    ),
    Unoffered(("--workflow-store",), "workflows are not served: write an ensemble, see docs/ensembles.md"),
    Unoffered(("--plugins-path", "--ppath"), "there are no plugins: authenticate in a proxy"),
)


class ServeCommand(TyperCommand):
    """The command `serve`, which knows what it does not have."""

    @override
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # typer's own base
        """Take out what changes nothing, with a note; refuse what would. Raises typer.BadParameter."""
        rest, notes = without_unoffered(args)
        for note in notes:
            typer.echo(f"shoal: {note}", err=True)
        return super().parse_args(ctx, with_switch_values(rest))


def without_unoffered(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without flags that change nothing, and a note for each of those.

    Raises:
        typer.BadParameter: A flag that is not offered.
    """
    rest: list[str] = []
    notes: list[str] = []
    words = list(arguments)
    while words and words[0] != "--":
        flag, equals, value = words.pop(0).partition("=")
        found = _find(flag)
        if found is None:
            rest.append(f"{flag}{equals}{value}")
            continue
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        if found.harmless is not None and value.lower() not in found.harmless:
            raise typer.BadParameter(f"not offered here: {found.sentence}", param_hint=flag)
        notes.append(f"{flag} has no effect: {found.sentence}")
    return [*rest, *words], notes


def _find(flag: str) -> Unoffered | None:
    for entry in UNOFFERED:
        for name in entry.names:
            if flag == name or (name.endswith("*") and flag.startswith(name[:-1])):
                return entry
    return None
