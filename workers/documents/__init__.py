"""Documents that processes exchange, such as the snapshot and the pipeline's status."""
