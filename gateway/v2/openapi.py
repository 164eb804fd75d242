"""The v2 paths for the OpenAPI page; they are routed outside FastAPI."""

from typing import Any

_MODEL = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
_VERSION = {
    "name": "version",
    "in": "path",
    "required": True,
    "description": "number or label",
    "schema": {"type": "string"},
}
_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype", "data"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "datatype": {"type": "string", "examples": ["FP32"]},
        "data": {"type": "array", "items": {}},
    },
}
_INFER_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["inputs"],
                "properties": {
                    "id": {"type": "string"},
                    "inputs": {"type": "array", "items": _TENSOR},
                    "outputs": {
                        "type": "array",
                        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
                    },
                },
            }
        }
    },
}


def _json_body(properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"required": False, "content": {"application/json": {"schema": schema}}}


_INDEX_BODY = _json_body({"ready": {"type": "boolean", "default": False}})
_LOAD_BODY = _json_body(
    {
        "parameters": {
            "type": "object",
            "properties": {
                "config": {"type": "string", "description": "a configuration in JSON, instead of the file's"}
            },
        }
    }
)
_UNLOAD_BODY = _json_body(
    {"parameters": {"type": "object", "properties": {"unload_dependents": {"type": "boolean", "default": False}}}}
)


def _operation(summary: str, parameters: list[Any], body: dict[str, Any] | None = None) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": ["v2"],
        "parameters": parameters,
        "responses": {"200": {"description": "Success"}, "default": {"description": '{"error": "what was wrong"}'}},
    }
    if body is not None:
        operation["requestBody"] = body
    return operation


def _model_paths() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for prefix, parameters in (
        ("/v2/models/{model}", [_MODEL]),
        ("/v2/models/{model}/versions/{version}", [_MODEL, _VERSION]),
    ):
        paths[prefix] = {"get": _operation("Model metadata", parameters)}
        paths[f"{prefix}/ready"] = {"get": _operation("Whether the model answers", parameters)}
        paths[f"{prefix}/config"] = {"get": _operation("Model configuration", parameters)}
        paths[f"{prefix}/stats"] = {"get": _operation("Statistics", parameters)}
        paths[f"{prefix}/infer"] = {"post": _operation("Inference, JSON or binary tensors", parameters, _INFER_BODY)}
        generate = _operation("Inference, flat JSON", parameters, _json_body({}))
        paths[f"{prefix}/generate"] = {"post": generate}
        paths[f"{prefix}/generate_stream"] = {"post": generate}
    return paths


def _settings_paths() -> dict[str, Any]:
    string = {"type": "string"}
    levels = {"type": "array", "items": string}
    trace = _json_body({"trace_level": levels, "trace_rate": string, "trace_count": string, "log_frequency": string})
    switch = {"type": "boolean"}
    logs = _json_body(
        {
            "log_info": switch,
            "log_warning": switch,
            "log_error": switch,
            "log_verbose_level": {"type": "integer", "minimum": 0},
            "log_format": {"type": "string", "enum": ["default", "ISO8601"]},
        }
    )
    return {
        path: {"get": _operation(f"{what} settings", parameters), "post": _operation("Change them", parameters, body)}
        for path, what, parameters, body in (
            ("/v2/trace/setting", "Trace", [], trace),
            ("/v2/models/{model}/trace/setting", "Trace", [_MODEL], trace),
            ("/v2/logging", "Log", [], logs),
        )
    }


def _shared_memory_paths() -> dict[str, Any]:
    region = {"name": "region", "in": "path", "required": True, "schema": {"type": "string"}}
    number = {"type": "integer", "minimum": 0}
    body = _json_body({"key": {"type": "string"}, "offset": number, "byte_size": number})
    prefix = "/v2/systemsharedmemory"
    return {
        f"{prefix}/status": {"get": _operation("All regions of shared memory", [])},
        f"{prefix}/unregister": {"post": _operation("Forget all regions", [])},
        f"{prefix}/region/{{region}}/status": {"get": _operation("One region of shared memory", [region])},
        f"{prefix}/region/{{region}}/register": {"post": _operation("Let requests use it", [region], body)},
        f"{prefix}/region/{{region}}/unregister": {"post": _operation("Forget one region", [region])},
    }


V2_PATHS: dict[str, Any] = {
    "/v2": {"get": _operation("Server metadata", [])},
    "/v2/health/live": {"get": _operation("Liveness: status only", [])},
    "/v2/health/ready": {"get": _operation("Readiness: status only", [])},
    "/v2/models/stats": {"get": _operation("Statistics of all models", [])},
    **_model_paths(),
    "/v2/repository/index": {"post": _operation("All models of the repositories", [], _INDEX_BODY)},
    "/v2/repository/models/{model}/load": {
        "post": _operation("Load a model, or load it again; needs the mode explicit", [_MODEL], _LOAD_BODY)
    },
    "/v2/repository/models/{model}/unload": {
        "post": _operation("Take a model out of service; needs the mode explicit", [_MODEL], _UNLOAD_BODY)
    },
    **_settings_paths(),
    **_shared_memory_paths(),
}
