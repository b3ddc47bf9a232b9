"""Queues made, changed, paused; worker hosts drained; processes; and all of it by name."""
