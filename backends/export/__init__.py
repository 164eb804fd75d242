"""Writes model versions, only those that keep the answers: torchvision's classifiers in several formats, int8."""
