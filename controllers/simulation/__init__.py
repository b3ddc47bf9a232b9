"""Scenarios of the lab, in which laws are compared with baselines."""
