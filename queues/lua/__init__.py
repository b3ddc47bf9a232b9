"""Lua scripts, one per file. Each script is atomic for all other clients."""
