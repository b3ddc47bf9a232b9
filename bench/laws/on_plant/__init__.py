"""Laws on a real plant: the disturbance and the metric of each paper, compared with a baseline."""
