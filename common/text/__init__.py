"""Parsers for external text: words, numbers, and tables of cells."""
