"""Scenarios of the lab, which compare laws with baselines."""
