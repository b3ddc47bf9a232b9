"""The language of rules, and the execution plan of rules in Spark."""
