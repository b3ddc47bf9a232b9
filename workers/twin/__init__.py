"""The twin: the loops as they ship, on a simulated plant and on virtual time."""
