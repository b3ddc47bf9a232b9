"""Tools to design laws: identification, placement, LQR, queueing models, and forecasts."""
