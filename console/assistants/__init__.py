"""Assistants over the Model Context Protocol, which read the plant and propose changes."""
