"""The interface to any plant, and the implementation for Weir's own plant."""
