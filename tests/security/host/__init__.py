"""Processes, servers, files and addresses of the host."""
