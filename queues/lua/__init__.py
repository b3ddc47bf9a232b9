"""Lua scripts, one per file: each is atomic for all other clients."""
