"""Flow control: the admission rate of the pipeline, and the load shares of its replicas."""
