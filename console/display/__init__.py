"""How values are displayed, on any page: order, wording, and thinned series."""
