"""What matchers keep between batches: matches, rows, and state by key group."""
