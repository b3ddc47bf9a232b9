"""The API's addresses: one area a module."""
