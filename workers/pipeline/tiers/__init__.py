"""The two tiers: rules for each event, and operators that turn events into complex events."""
