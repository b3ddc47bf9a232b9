"""General code that all packages share: errors, declared values, external documents, files, and logs."""
