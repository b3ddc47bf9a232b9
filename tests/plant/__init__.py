"""Tests on a whole running plant."""
