"""Parts of scenarios: arrivals, simulated plants, and the metrics of an outcome."""
