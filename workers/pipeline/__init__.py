"""The Spark application: from containers through rules and patterns to complex events."""
