"""The local machine: process environments, Java, Spark's privacy, and permitted outgoing connections."""
