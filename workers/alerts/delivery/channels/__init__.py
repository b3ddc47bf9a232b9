"""The ways out: one channel a module."""
