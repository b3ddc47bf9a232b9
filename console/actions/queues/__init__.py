"""User actions on queues, worker hosts, and processes: create, change, pause, drain, restart."""
