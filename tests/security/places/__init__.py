"""Attacks on the places that a process has for requests: taken for long, and by many."""
