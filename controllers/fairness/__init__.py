"""Fairness: the weights by which a queue gives out the events of its keys."""
