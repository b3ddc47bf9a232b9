"""Operation of queues, worker hosts, processes, tunings, and reports, addressed by name."""
