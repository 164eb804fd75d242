"""The batching scheduler and its two drivers; see batching/core for the heart."""
