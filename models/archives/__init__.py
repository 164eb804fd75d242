"""TorchServe's archives and model stores: unpacked safely, read strictly, and turned into specifications."""
