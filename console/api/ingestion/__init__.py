"""Events that come by the API, and how large they may be."""
