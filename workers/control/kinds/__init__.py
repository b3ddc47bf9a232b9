"""The kinds of loops, one per module: their observations, their actuators, and their targets."""
