"""The v2 protocol over gRPC: Triton's service, with the engine, decoding rules and texts of `gateway.v2`."""
