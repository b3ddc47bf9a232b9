"""Design tools for laws: identification, pole placement, LQR, queueing models, and forecasts."""
