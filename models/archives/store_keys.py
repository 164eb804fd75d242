"""Keys of config.properties that have no effect, and what does the same here."""

from collections.abc import Mapping

_NOT_HERE = "there is nothing like it in this server"
_NO_GRPC = "there is no gRPC: use HTTP"
_PROXY = "put a proxy in front of the server for that"
_METRICS = "the server has Prometheus metrics: --allow-metrics, --metrics-port"
_SEQUENCES = "there are no sequences"

WITHOUT_EFFECT: Mapping[str, str] = {
    "model_store": "the store is the directory that --model-repository names",
    "install_py_dep_per_model": "start the server with --install-py-dep-per-model instead",
    "number_of_gpu": "all GPUs that the server sees are used: choose them with CUDA_VISIBLE_DEVICES, or deviceIds",
    "inference_address": "the server listens where --http-address and --http-port say",
    "management_address": "models are managed on --http-port too, with --model-control-mode=explicit",
    "metrics_address": "metrics are on --http-address and --metrics-port",
    "enable_metrics_api": _METRICS,
    "metrics_mode": _METRICS,
    "metrics_config": _METRICS,
    "model_metrics_auto_detect": _METRICS,
    "system_metrics_cmd": _METRICS,
    "disable_system_metrics": _METRICS,
    "max_request_size": "start the server with --http-max-input-size instead",
    "max_response_size": "answers have no limit",
    "enable_model_api": "start the server with --model-control-mode=explicit to load and unload models",
    "disable_token_authorization": "a token is asked for with --control-token-file only",
    "token_expiration_min": "the token of --control-token-file does not expire",
    "async_logging": "see --log-format and --log-verbose",
    "default_service_handler": "each archive's manifest names its handler",
    "workflow_store": "workflows are not served: write an ensemble, see docs/ensembles.md",
    "prefer_direct_buffer": "it is of TorchServe's Java code",
    "vmargs": "it is of TorchServe's Java code",
    **dict.fromkeys(("cors_allowed_origin", "cors_allowed_methods", "cors_allowed_headers"), _PROXY),
    **dict.fromkeys(
        ("keystore", "keystore_pass", "keystore_type", "private_key_file", "certificate_file"),
        f"there is no TLS: {_PROXY}",
    ),
    **dict.fromkeys(
        (
            "grpc_inference_address", "grpc_inference_port", "grpc_management_address", "grpc_management_port",
            "grpc_inference_max_connection_age_ms", "grpc_management_max_connection_age_ms",
            "grpc_inference_max_connection_age_grace_ms", "grpc_management_max_connection_age_grace_ms",
        ),
        _NO_GRPC,
    ),
    **dict.fromkeys(
        ("ts_header_key_sequence_id", "ts_header_key_sequence_start", "ts_header_key_sequence_end"), _SEQUENCES
    ),
    **dict.fromkeys(
        (
            "number_of_netty_threads", "netty_client_threads", "enable_envvars_config", "allowed_urls",
            "blacklist_env_vars", "model_snapshot", "ts_open_inference_protocol", "use_native_io", "io_ratio",
            "cpu_launcher_enable", "cpu_launcher_args", "initial_worker_port", "unregister_model_timeout",
        ),
        _NOT_HERE,
    ),
}  # fmt: skip
