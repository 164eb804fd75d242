"""Encoded images to tensors: header checks, decoding, torchvision's geometry."""
