"""Rules and patterns over streams, in Spark and by the matcher alone."""
