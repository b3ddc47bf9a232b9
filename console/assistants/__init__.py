"""Assistants at the console, by the Model Context Protocol: they read, ask, and propose; people decide."""
