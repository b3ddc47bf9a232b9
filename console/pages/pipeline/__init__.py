"""The pipeline and its applications."""
