"""Documents that processes exchange: the snapshot with its parts, the pipeline's status, one type each."""
