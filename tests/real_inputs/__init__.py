"""Input as real systems send it: cases from public bug reports, with variants."""
