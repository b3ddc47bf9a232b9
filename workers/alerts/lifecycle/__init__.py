"""The lifecycle of an alert from pending to resolved, and the open alerts."""
