"""What comes from outside, read and checked before anything else sees it."""
