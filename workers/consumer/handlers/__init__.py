"""Event handlers, one per module. Each handler is idempotent by the event's ID."""
