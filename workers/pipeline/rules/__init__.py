"""Rules in a language of our own, and their plan in Spark."""
