"""The language of rules, and their evaluation in Arrow and in Spark."""
