"""Weir as it is shipped, in containers: what `docker-compose.yml` promises, seen on the running file."""
