"""Declared plants: read, steered, and attacked."""
