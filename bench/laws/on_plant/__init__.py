"""Laws on a real plant: the disturbance of each paper, and the paper's metric beside its baseline."""
