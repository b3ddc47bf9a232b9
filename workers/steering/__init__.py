"""What people set: overrides with their scope and end, and the plant's settings."""
