"""The pages of Help."""
