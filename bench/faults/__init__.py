"""Faults on a whole plant under load, at random from a seed: what is lost, and how soon it is whole again."""
