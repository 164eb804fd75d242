"""Model repositories in object stores and on web servers, mirrored into a local directory."""

from models.remote.listing import MirrorLimits
from models.remote.mirror import Mirror, SyncReport
from models.remote.urls import is_remote, split_places

__all__ = ["Mirror", "MirrorLimits", "SyncReport", "is_remote", "split_places"]
