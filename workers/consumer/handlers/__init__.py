"""Event handlers, one per module, each idempotent by the event's id."""
