"""PyTorch's numbers of threads on the CPU."""

import logging

import torch

logger = logging.getLogger(__name__)


def set_threads(intra_op: int, inter_op: int) -> None:
    """Set them for batches of the calling thread.

    Args:
        intra_op: Threads of one operator. Belongs to the calling thread.
        inter_op: Operators at once. Belongs to the process; the first model decides, others are told in the log.
    """
    torch.get_num_threads()  # a thread's first call takes the number that any thread set last; not after ours, please
    torch.set_num_threads(intra_op)
    if torch.get_num_interop_threads() == inter_op:
        return
    try:
        torch.set_num_interop_threads(inter_op)
    except RuntimeError:
        logger.warning(
            "inter_op_thread_count is %d: this process has begun with %d, which stays",
            inter_op,
            torch.get_num_interop_threads(),
        )
