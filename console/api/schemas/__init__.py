"""What the API answers, as its document shows it: the schemas of one area a module."""
