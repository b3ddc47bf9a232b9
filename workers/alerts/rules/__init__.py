"""What people set: rules, silences, and whom they match."""
