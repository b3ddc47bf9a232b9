"""Events in the pipeline: their columns, the reader of containers, and faulty events."""
