"""What is done with events: one handler a module, each idempotent by the event's id."""
