"""Proposals that people approve by hash: plans, tunings, and proposals of assistants."""
