"""The request for a Spark job: one chunk of one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Request:
    """A request. `token` names hidden files, and Spark's job group.

    The job fills in `input_rows` once it is known, so that progress can be given as a share.
    """

    job: str
    parameters: Mapping[str, Any]
    content: Mapping[str, Any]
    token: str
    data: Path
    input_rows: int = 0
