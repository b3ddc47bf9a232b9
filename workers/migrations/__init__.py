"""The history of this application's tables."""
