"""Texts and documents from outside that are never code."""
