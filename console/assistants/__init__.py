"""Assistants over the Model Context Protocol: they read, ask, and propose; people decide."""
