"""The second tier: operators that turn events into complex events."""
