"""Tags and filters of templates."""
