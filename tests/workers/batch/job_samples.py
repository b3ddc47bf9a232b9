"""Jobs of one's own for tests: what a batch task does is written to a file, line by line."""

import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter
from workers.batch import files
from workers.batch.job import ChunkResult, ChunkSpec, Job

CHUNKS = Parameter("chunks", "", "how many", 3, 0, 100, kind="integer")
FAULT = Parameter("fault", "", "what goes wrong", kind="text")


def _numbered(values: Any, where: Any):
    return (ChunkSpec(f"part-{number}", {"number": number}) for number in range(values["chunks"]))


def _write(lease: Any) -> ChunkResult:
    """`extracts/part-N.txt` with who wrote it; waits while a file `hold` is there, without a sign of life."""
    fault = lease.parameters["fault"]
    if fault == "refused":
        raise BadInput("on_error", "the input is foreign.")
    if fault == "raises" and lease.content["number"] == 1:
        raise RuntimeError("it broke")
    lease.check({"rows": 5, "share": 0.5})
    data: Path = lease.surroundings.data
    final = f"extracts/{lease.chunk.identifier}.txt"
    temporary = files.build_hidden_path(final, lease.token)
    (data / temporary).parent.mkdir(parents=True, exist_ok=True)
    (data / temporary).write_text(str(os.getpid()))
    while (data / "hold").exists():
        (data / "holding").touch()
        time.sleep(0.01)
    return ChunkResult(10, {final: temporary})


NUMBERED = Job(
    "numbered", "Parts, known beforehand.", (CHUNKS, FAULT), lambda where: nullcontext(_write), pieces=_numbered
)


def _after(values: Any, where: Any, after: str | None) -> ChunkSpec | None:
    number = 0 if after is None else int(after.removeprefix("part-")) + 1
    return ChunkSpec(f"part-{number}", {"number": number}) if number < values["chunks"] else None


UNKNOWN = Job(
    "unknown", "Parts, one after the other.", (CHUNKS, FAULT), lambda where: nullcontext(_write), next_piece=_after
)


def _unreadable(values: Any, where: Any):
    raise PermissionError("may not be read")


UNPLANNED = Job(
    "unplanned", "What is to be done can't be found out.", (), lambda where: nullcontext(_write), pieces=_unreadable
)
