"""Names that people give: to tasks, alert rules, receivers."""

import re

NAME = re.compile(r"\A[a-zA-Z0-9][a-zA-Z0-9._-]{0,79}\Z")
