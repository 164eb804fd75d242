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
    return paths


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
}
