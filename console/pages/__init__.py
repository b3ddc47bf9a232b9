"""The pages of the console: a module for each page, a folder for each area."""
