"""Queues made, changed, paused; hosts drained; processes; what was learned; all by name."""
