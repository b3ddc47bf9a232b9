"""What scenarios are made of: arrivals, simulated plants, and the metrics of an outcome."""
