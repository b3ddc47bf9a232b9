"""Who one is, what one may, and what is noted of it."""
