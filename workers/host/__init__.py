"""The local machine: process environments, Java, the isolation of Spark, and permitted outgoing connections."""
