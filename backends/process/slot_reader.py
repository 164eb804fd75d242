"""The reader's side of a region: batches of the same layout are found without looking again."""

from backends.process.slots import Region, TensorPlace, read_tensors
from models.inference import Tensors
from models.tensors import DataType


class SlotReader:
    """Reads one batch after the other from a region. Used by one thread at a time.

    Args:
        region: Closed by `close`.
    """

    def __init__(self, region: Region) -> None:
        self._region = region
        self._places: tuple[TensorPlace, ...] | None = None  # of `_views`, which are looked at again
        self._views: Tensors = {}

    def read(self, places: tuple[TensorPlace, ...]) -> Tensors:
        """The tensors at these places, as `read_tensors` gives them.

        Places that are the same object as the last time are not checked again.

        Raises:
            ProtocolError: See `read_tensors`.
        """
        if places is not self._places:
            self.forget()
            tensors = read_tensors(self._region, places)
            if any(place.data_type is DataType.BYTES for place in places):
                return tensors
            self._places, self._views = places, tensors
        return {name: view.view() for name, view in self._views.items()}

    def forget(self) -> None:
        """Keep no view of the memory."""
        self._places, self._views = None, {}

    def close(self) -> None:
        """Let go of the region. Only `close` may follow."""
        self.forget()
        self._region.close()
