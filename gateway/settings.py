"""The only reader of environment variables (`SHOAL_...`) and of the command line's values."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from models.remote.urls import split_places

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(ge=0, le=86_400)]
INT32_MAX = 2**31 - 1
Count = Annotated[int, Field(ge=0, le=INT32_MAX)]  # all that gRPC's channel arguments hold


class Settings(BaseSettings):
    """Everything that can be set when serving.

    The names are those of the flags, with underscores; Triton's where it has them.
    """

    model_config = SettingsConfigDict(env_prefix="SHOAL_", env_ignore_empty=True, extra="forbid", frozen=True)

    model_repository: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Directory or URL of a repository in Triton's layout; repeatable. "
        "Without any, the embedded model is served.",
    )
    http_address: str = Field("127.0.0.1", min_length=1, description="Address of all ports.")
    http_port: Port = Field(8000, description="0 means any free port.")
    allow_grpc: bool = Field(True, description="Serve the v2 protocol over gRPC too, on its own port.")
    grpc_port: Port = Field(8001, description="0 means any free port.")
    grpc_address: str | None = Field(
        None, min_length=1, description="Address of the gRPC port; by default that of the others."
    )
    grpc_max_input_size: int = Field(256 << 20, ge=1, le=INT32_MAX, description="Largest gRPC message taken, bytes.")
    grpc_infer_response_compression_level: Literal["none", "low", "medium", "high"] = Field(
        "none", description="For clients that take it."
    )
    grpc_use_ssl: bool = Field(False, description="Encrypt gRPC with the key and certificate below.")
    grpc_use_ssl_mutual: bool = Field(False, description="Likewise, and clients need a certificate.")
    grpc_server_cert: Path | None = Field(None, description="The server's certificate, PEM.")
    grpc_server_key: Path | None = Field(None, description="Its key, PEM.")
    grpc_root_cert: Path | None = Field(None, description="What signs the certificates of clients, PEM.")
    grpc_keepalive_time: int = Field(7_200_000, ge=1, le=INT32_MAX, description="Time between keepalive pings, ms.")
    grpc_keepalive_timeout: Count = Field(20_000, description="Wait for their answer before closing, ms.")
    grpc_keepalive_permit_without_calls: bool = Field(False, description="Ping without calls in flight.")
    grpc_http2_max_pings_without_data: Count = Field(2, description="Pings between two data frames; 0: any number.")
    grpc_http2_min_recv_ping_interval_without_data: Count = Field(
        300_000, description="Least time between a client's pings, ms."
    )
    grpc_http2_max_ping_strikes: Count = Field(2, description="Earlier pings forgiven a client; 0: all.")
    grpc_max_connection_age: Count = Field(0, description="Connections are closed after it, ms; 0: never.")
    grpc_max_connection_age_grace: Count = Field(0, description="Time for their calls to end, ms; 0: any.")
    allow_metrics: bool = Field(True, description="Serve Prometheus metrics on their own port.")
    metrics_port: Port = Field(8002, description="0 means any free port.")
    model_control_mode: Literal["none", "poll", "explicit"] = Field(
        "none", description="Load models at the start only, when their files change too, or when asked to."
    )
    load_model: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="With explicit: load it at the start; repeatable; * means all."
    )
    control_token_file: Path | None = Field(
        None, description="With explicit: holds the token that load, unload and scale need; a must beyond loopback."
    )
    repository_poll_secs: float = Field(15, gt=0, le=86_400, description="With poll: time between two looks.")
    model_load_thread_count: int = Field(4, ge=1, le=1024, description="Models that are loaded at once.")
    strict_readiness: bool = Field(
        True,
        description="A model that failed to load, or none of whose instances works, keeps the server from being ready, "
        "unless its shoal.toml says required = false.",
    )
    exit_on_error: bool = Field(False, description="A model that fails to load at the start ends the server.")
    exit_timeout_secs: Seconds = Field(30, description="Longest wait for running requests at the end.")
    drain_lead_secs: Seconds = Field(1, description="After SIGTERM: not ready, but still answering.")
    http_max_input_size: int = Field(64 << 20, ge=1, description="Largest request body, bytes.")
    http_restricted_api: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Calls that need a header, as <category>,<category>:<header>=<value>; repeatable."
    )
    grpc_restricted_protocol: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Likewise over gRPC; the header's name gets triton-grpc-protocol- in front."
    )
    http_header_forward_pattern: str = Field(
        "", description="Headers of requests that models see as parameters: a regular expression for the whole name."
    )
    grpc_header_forward_pattern: str = Field("", description="Likewise over gRPC.")
    http_max_connections: int = Field(10_000, ge=1, description="Open connections; more are answered 503.")
    allow_client_shm: bool = Field(
        False,
        description="Clients may register shared memory of this machine for tensors: any in /dev/shm that the server "
        "may write.",
    )
    max_image_bytes: int = Field(32 << 20, ge=1, description="Largest encoded image.")
    max_image_side: int = Field(16_384, ge=1, description="Largest width or height, pixels.")
    max_image_pixels: int = Field(64_000_000, ge=1, description="Largest picture.")
    max_images: int = Field(64, ge=1, description="Images in one request.")
    request_timeout_secs: float = Field(60, gt=0, le=86_400, description="For requests without a timeout of their own.")
    allow_cpu: bool = Field(False, description="Run KIND_GPU instance groups on the CPU.")
    rate_limit: Literal["off", "execution_count"] = Field(
        "off", description="Models take turns at the resources of their instance groups."
    )
    rate_limit_resource: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="How much there is, as <name>:<count>[:<device>]; repeatable."
    )
    trust_pickled_models: bool = Field(
        False, description="Load PyTorch files that can run any code while they are read."
    )
    install_py_dep_per_model: bool = Field(
        False,
        description="Install what archives of TorchServe require, with pip, each into a directory of its own.",
    )
    cache_dir: Path = Field(
        default_factory=lambda: Path.home() / ".cache" / "shoal",
        description="For the embedded model, built engines and measurements.",
    )
    id: str = Field("shoal", min_length=1, max_length=64, description="Server name in the v2 metadata.")
    log_format: Literal["text", "json", "default", "ISO8601"] = Field(
        "text", description="For people or for machines; default and ISO8601 are Triton's words for people."
    )
    log_verbose: int = Field(0, ge=0, description="1 and more: debug lines.")
    log_requests: bool = Field(False, description="One line a request.")

    @field_validator("rate_limit_resource", "load_model", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        return [text for text in value.split(",") if text] if isinstance(value, str) else value

    @field_validator("load_model")
    @classmethod
    def _check_names(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "*" in value and len(value) > 1:
            raise ValueError("found * beside names, expected it alone: it means all models")
        mode = info.data.get("model_control_mode")
        if value and mode != "explicit":
            raise ValueError(f"found model-control-mode {mode}, expected explicit: the others load all models")
        return value

    @field_validator("rate_limit_resource")
    @classmethod
    def _check_resources(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from gateway.rate_limit import parse_resource_limit  # noqa: PLC0415 - `shoal --help` need not wait for numpy

        for text in value:
            parse_resource_limit(text)
        return value

    @field_validator("http_restricted_api", "grpc_restricted_protocol", mode="before")
    @classmethod
    def _split_groups(cls, value: object) -> object:
        """In the environment several groups are separated by semicolons, as a comma is part of a group."""
        return [text for text in value.split(";") if text] if isinstance(value, str) else value

    @field_validator("http_restricted_api", "grpc_restricted_protocol")
    @classmethod
    def _check_groups(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from gateway.v2.restricted import RestrictedFeatures  # noqa: PLC0415 - as above

        RestrictedFeatures.parse(value)
        return value

    @field_validator("http_header_forward_pattern", "grpc_header_forward_pattern")
    @classmethod
    def _check_pattern(cls, value: str) -> str:
        from gateway.v2.forwarding import HeaderForwarding  # noqa: PLC0415 - as above

        HeaderForwarding.parse(value)
        return value

    @field_validator("model_repository", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """In the environment several repositories are separated like those of PATH."""
        places = split_places(value, os.pathsep) if isinstance(value, str) else value
        if not isinstance(places, (list, tuple)):
            return places
        if "" in places:
            raise ValueError("found an empty path, expected a directory")
        return [os.fspath(place) if isinstance(place, os.PathLike) else place for place in places]
