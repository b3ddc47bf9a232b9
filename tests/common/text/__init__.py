"""Text from outside as values: words, numbers, and tables of cells."""
