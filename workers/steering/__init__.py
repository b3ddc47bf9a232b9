"""Settings that people change: overrides with their scope and expiry, and the plant's settings."""
