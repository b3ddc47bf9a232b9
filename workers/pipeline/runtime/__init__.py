"""The process that runs applications on Spark."""
