"""The pages of the console, with one module per page and one folder per area."""
