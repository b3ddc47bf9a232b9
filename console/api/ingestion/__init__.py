"""Events sent to the API, and the limits of their size."""
