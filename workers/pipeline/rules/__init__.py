"""The language of rules, and the plan of the rules in Spark."""
