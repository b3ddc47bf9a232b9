"""Tests of the guard: what a vanished Weir has left is restored beside the system."""
