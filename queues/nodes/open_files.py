"""The limit of open files and connections of a process."""

import resource

# Enough for every process. A hard limit may be a billion, and some programs iterate over all of it.
MAX_OPEN_FILES = 65_536


def raise_open_file_limit() -> None:
    """Raise this process's limit of open files as far as its host allows, for it and what it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
