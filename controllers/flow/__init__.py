"""Flow control: how much the pipeline admits, and how its replicas share the load."""
