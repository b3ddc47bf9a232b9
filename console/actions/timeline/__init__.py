"""User actions on the timeline: marks, and links for people without a login."""
