"""The Lua scripts that run on the servers: `{folder}/{name}.lua` beside this module, each a single step.

| folder | what it works on |
|---|---|
| segment | a queue's segment on a node, `queues.segments` |
| lease | `workers.coordination.leases` |
| plant | who holds a plant, `workers.plants.holding` |
| pipeline | what is between the pipeline's tiers, `workers.pipeline` |
| control | counts and limits on the control server |
| parts | what others include |

A script begins with what it does, its KEYS, its ARGV and its answer. A line `-- include parts/x` stands for
that file. One with `allow-oom` runs on a full server, too: it frees memory, or takes little.
"""

import functools
import re
from pathlib import Path

FOLDER = Path(__file__).parent
_INCLUDE = re.compile(r"^-- include (\S+)\n", re.MULTILINE)


@functools.cache
def script(name: str) -> str:
    """The text of `folder/name`, with what it includes. Raises FileNotFoundError."""
    text = (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda line: script(line[1]), text)


def scripts(folder: str) -> dict[str, str]:
    """The texts of a folder's scripts by name."""
    return {path.stem: script(f"{folder}/{path.stem}") for path in sorted((FOLDER / folder).glob("*.lua"))}
