"""The plant in a terminal (`weir top`): the worst problems, incidents, and manual changes."""
