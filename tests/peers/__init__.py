"""The same requests to Shoal and to the real servers."""
