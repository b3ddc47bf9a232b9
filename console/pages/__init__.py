"""The pages: a view and its context, a room for each area."""
