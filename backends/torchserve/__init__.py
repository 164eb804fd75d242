"""TorchServe's handlers in worker processes, and the parts of its package `ts` that they import."""
