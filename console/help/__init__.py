"""The documentation: read from docs/, completed by generated pages, shown as Help and built as a site."""
