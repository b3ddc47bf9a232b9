"""What processes say to each other: the snapshot with its parts, the pipeline's status, a type each."""
