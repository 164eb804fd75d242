"""The requests, by area. Nothing here kills tritonserver 2.51; what would is in docs/compatibility.md."""
