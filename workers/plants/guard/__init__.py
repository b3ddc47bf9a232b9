"""The guard, one file that runs beside an attached system, and the manifests that start it there."""
