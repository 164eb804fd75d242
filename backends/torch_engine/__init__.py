"""PyTorch: the only package that imports torch and torchvision, and the home of the CUDA device that engines share."""
