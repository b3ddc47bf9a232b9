"""What people do to queues, worker hosts and processes: made, changed, paused, drained, restarted."""
