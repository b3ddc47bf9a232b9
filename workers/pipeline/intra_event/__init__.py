"""The first tier: reads each event separately, applies the rules, and writes the results."""
