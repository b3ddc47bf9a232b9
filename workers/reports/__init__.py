"""Reports: a week of the plant on a page and by mail; what was promised, what happened, who changed what."""
