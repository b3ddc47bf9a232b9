"""The servers of the queues: how each is started, watched, logged in to, and judged."""
