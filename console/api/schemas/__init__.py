"""Schemas of the API's answers, as its document shows them: one area a module."""
