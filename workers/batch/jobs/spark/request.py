"""What a Spark job is asked: one chunk of one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Request:
    """`token` names hidden files, and Spark's job group. `input_rows` is filled in by the job once it knows,
    so that progress has a whole to be a share of.
    """

    job: str
    parameters: Mapping[str, Any]
    content: Mapping[str, Any]
    token: str
    data: Path
    input_rows: int = 0
