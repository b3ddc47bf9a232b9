"""Service levels as pages and API show and change them."""
