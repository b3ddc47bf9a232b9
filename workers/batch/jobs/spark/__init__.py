"""Jobs that run on Spark, in a process of their own."""
