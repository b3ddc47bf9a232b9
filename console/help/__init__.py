"""The documentation: read from docs/, completed by what is generated, shown as Help and built into a site."""
