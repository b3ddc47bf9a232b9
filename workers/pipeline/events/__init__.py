"""Events in the pipeline: their columns, and how they are read from containers."""
