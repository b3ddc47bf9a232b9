"""Drills: practice incidents on the embedded plant, with faults that always end, and a score."""
