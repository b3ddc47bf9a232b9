"""User-defined alert rules, silences, and matchers."""
