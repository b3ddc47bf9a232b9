"""The process that runs applications, in its threads or on Spark."""
