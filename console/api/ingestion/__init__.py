"""Events that clients send to the API, and limits on their size."""
