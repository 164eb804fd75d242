"""The v2 paths for the OpenAPI page; they are routed outside FastAPI."""

from typing import Any

_MODEL = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
_VERSION = {"name": "version", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}
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
}
