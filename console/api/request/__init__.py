"""A request to the API: who sends it, in which form, and how it is refused."""
