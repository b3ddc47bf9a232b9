"""The plant in a terminal (`weir top`): what is worst, incidents, and what a person stops."""
