"""Getting ready on a GPU: one model of a process at a time."""

import threading

PREPARING = threading.RLock()
"""Held by whoever records kernels, and by whoever may wait for the whole device while it gets ready.

CUDA fails both a recording and such a wait that comes in between, whatever the thread and the stream: compilers try
kernels and wait, and ONNX Runtime does when it opens a session. Running batches wait for their own streams alone.
"""
