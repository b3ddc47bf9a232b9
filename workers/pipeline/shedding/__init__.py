"""Shedding: which events are left out, and what that costs."""
