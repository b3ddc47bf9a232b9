"""How values are shown, whatever the page: order, wording, thinned series."""
