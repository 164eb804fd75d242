"""Things that execute a batch: executors, hosts, pools."""
