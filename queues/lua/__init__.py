"""Lua scripts, one a file: each is one step for everybody else."""
