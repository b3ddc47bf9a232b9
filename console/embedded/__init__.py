"""A plant on one machine (./run): its processes, its initial content, and its settings."""
