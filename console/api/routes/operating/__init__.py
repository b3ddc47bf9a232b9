"""Queues made, changed, paused; worker hosts drained; processes; what was learned; all of it by name."""
