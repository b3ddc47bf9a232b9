"""The servers of the queues: startup, login, monitoring, and evaluation of their state."""
