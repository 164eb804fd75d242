"""Do the simulated policies behave like the real servers? Recorded traces of the servers are the judge."""
