"""Reports: a week of the plant on a page and by mail; promises, incidents, and who changed what."""
