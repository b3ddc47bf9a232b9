"""What waits for a person: plans and tunings, approved by their hash, or rejected."""
