"""The gateway: wire surfaces, the engine they call, and the process that owns both."""
