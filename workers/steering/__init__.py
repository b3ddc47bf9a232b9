"""Settings by people: overrides with their scope and expiry, and the plant's settings."""
