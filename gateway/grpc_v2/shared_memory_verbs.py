"""Triton's shared-memory extensions: register, unregister, status."""

from tritonclient.grpc import service_pb2

from gateway.grpc_v2.calls import Context
from gateway.grpc_v2.parameters import Message
from gateway.v2.shared_memory import SharedMemory


class SharedMemoryVerbs:
    """Regions of the machine's memory; of its GPUs' memory there are none.

    Args:
        memory: The registered regions.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    async def status(self, request: Message, _context: Context) -> Message:
        """SystemSharedMemoryStatus."""
        answer = service_pb2.SystemSharedMemoryStatusResponse()
        for region in self._memory.status(request.name or None):
            answer.regions[region.name].MergeFrom(
                service_pb2.SystemSharedMemoryStatusResponse.RegionStatus(
                    name=region.name, key=region.key, offset=region.offset, byte_size=region.size_bytes
                )
            )
        return answer

    async def register(self, request: Message, _context: Context) -> Message:
        """SystemSharedMemoryRegister."""
        self._memory.register(request.name, request.key, request.offset, request.byte_size)
        return service_pb2.SystemSharedMemoryRegisterResponse()

    async def unregister(self, request: Message, _context: Context) -> Message:
        """SystemSharedMemoryUnregister."""
        self._memory.unregister(request.name or None)
        return service_pb2.SystemSharedMemoryUnregisterResponse()

    async def cuda_status(self, request: Message, _context: Context) -> Message:
        """CudaSharedMemoryStatus."""
        self._memory.cuda_status(request.name or None)
        return service_pb2.CudaSharedMemoryStatusResponse()

    async def cuda_register(self, request: Message, _context: Context) -> Message:
        """CudaSharedMemoryRegister."""
        self._memory.register_cuda(request.name)

    async def cuda_unregister(self, _request: Message, _context: Context) -> Message:
        """CudaSharedMemoryUnregister."""
        self._memory.check_enabled()
        return service_pb2.CudaSharedMemoryUnregisterResponse()
