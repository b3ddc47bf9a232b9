"""Proposals that people approve by hash: plans and proposals of assistants."""
