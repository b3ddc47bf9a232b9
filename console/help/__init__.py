"""The documentation: files of docs/ and generated pages, shown as Help and built as a site."""
