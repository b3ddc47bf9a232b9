"""Tests of what all packages share: checks, documents, logs, and parsers of text."""
