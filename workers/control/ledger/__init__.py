"""Every decision with all it was based on: written, judged, replayed, searched."""
