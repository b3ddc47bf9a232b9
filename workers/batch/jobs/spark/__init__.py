"""Jobs that run on Spark, in a separate process."""
