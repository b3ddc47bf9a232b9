"""Plants that others built, as adapters behind the same port."""
