"""Real servers and clients to compare with: their installation from public wheels, and their processes."""
