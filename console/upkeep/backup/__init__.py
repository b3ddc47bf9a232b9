"""A plant as one file, and back: its database, what its servers keep, and its folder."""
