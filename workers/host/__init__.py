"""This machine: environments of our processes, Java, Spark's privacy, permitted outgoing connections."""
