"""The Lua scripts that run on the servers: `{folder}/{name}.lua` beside this module, each atomic.

| folder | what it works on |
|---|---|
| segment | a queue's segment on a node, `queues.segments` |
| lease | `workers.coordination.leases` |
| plant | who holds a plant, `workers.plants.holding` |
| pipeline | what is between the pipeline's tiers, `workers.pipeline` |
| control | counts and limits on the control server |
| parts | parts that others include |

A script starts with a description, its KEYS, its ARGV, and its reply. A line `-- include parts/x` is replaced by that
file. A script with `allow-oom` also runs on a full server: it frees memory, or needs little.
"""

import functools
import re
from pathlib import Path

FOLDER = Path(__file__).parent
_INCLUDE = re.compile(r"^-- include (\S+)\n", re.MULTILINE)


@functools.cache
def load_script(name: str) -> str:
    """Return the text of `folder/name` with its includes. Raises `FileNotFoundError`."""
    text = (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda line: load_script(line[1]), text)


def load_scripts(folder: str) -> dict[str, str]:
    """Return the texts of a folder's scripts by name."""
    return {path.stem: load_script(f"{folder}/{path.stem}") for path in sorted((FOLDER / folder).glob("*.lua"))}
