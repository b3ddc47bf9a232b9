"""Events in the pipeline: their columns, and the reader of containers."""
