"""A plant on one machine (./run): its processes, its seed, its settings."""
