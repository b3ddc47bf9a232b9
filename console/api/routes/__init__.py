"""The addresses of the API, with one area per module."""
