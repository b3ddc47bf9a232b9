"""How much the pipeline admits, and how its replicas share it."""
