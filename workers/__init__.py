"""Processing of events, and the control loops."""
