"""Live pages: Weir pushes every change of the plant to browsers."""
