"""A page's source with its white space as a browser takes it: any run of it is one space."""

import re
from typing import Any


def source_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", answer.content.decode())
