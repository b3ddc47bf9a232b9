"""Live pages: each change of the plant, pushed to browsers."""
