"""This machine: the environment of our processes, Java, Spark's privacy, what may be called outside."""
