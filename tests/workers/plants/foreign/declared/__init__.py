"""Declared plants: read, controlled, and attacked."""
