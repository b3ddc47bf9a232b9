"""A worker's life: it claims blocks of one container, handles them, acknowledges, reports."""
