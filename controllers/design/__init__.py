"""How laws are designed: identification, placement, LQR, queueing models, forecasts."""
