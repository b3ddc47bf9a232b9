"""Shedding: the selection of events to drop, and its effect on the matches."""
