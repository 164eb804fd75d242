"""Page-locked slots: from such memory a GPU copies by itself, and while it computes."""

import logging
from typing import Protocol, runtime_checkable

from backends.ports import Executor
from backends.process.slots import Region

logger = logging.getLogger(__name__)


@runtime_checkable
class PinningExecutor(Executor, Protocol):
    """An executor that can page-lock memory which is not its own."""

    def pin_memory(self, address: int, nbytes: int) -> None:
        """Page-lock memory that inputs will be in. Called after `load`. Raises any exception where it cannot."""
        ...

    def unpin_memory(self, address: int) -> None:
        """Undo `pin_memory` for the memory at this address, which goes away afterwards."""
        ...


class PinnedRegion:
    """Follows a region of inputs, and keeps it page-locked if the executor can."""

    def __init__(self, region: Region, executor: Executor) -> None:
        self._region = region
        self._executor = executor if isinstance(executor, PinningExecutor) else None
        self._address = 0

    def follow(self, capacity_bytes: int) -> None:
        """Map what the writer has reserved, and lock it instead of what was mapped. Raises ProtocolError."""
        if capacity_bytes > self._region.capacity_bytes:
            self.unpin()
        self._region.follow(capacity_bytes)
        if self._executor is not None and not self._address:
            self._pin(self._executor)

    def unpin(self) -> None:
        """Before the executor closes, and before the memory goes."""
        if self._executor is not None and self._address:
            address, self._address = self._address, 0
            self._executor.unpin_memory(address)

    def _pin(self, executor: PinningExecutor) -> None:
        address = self._region.address
        try:
            executor.pin_memory(address, self._region.capacity_bytes)
        except Exception as error:  # noqa: BLE001 - of the engine; it is only slower without
            logger.warning("the slot of %d bytes is not page-locked: %s", self._region.capacity_bytes, error)
            self._executor = None
        else:
            self._address = address
