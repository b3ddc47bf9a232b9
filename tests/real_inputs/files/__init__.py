"""Files and documents that people and programs write: CSV, JSON lines, YAML."""
