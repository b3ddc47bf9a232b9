"""Whether Weir itself works: health, readiness, metrics for scrapers."""
