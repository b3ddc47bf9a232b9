"""Lines of a log as people may see them: without the secrets that a library may have written there."""

import re
from collections.abc import Iterator, Mapping

from queues import environment as variables

HIDDEN = "…"
SHORTEST = 6  # a shorter word would be found everywhere
# user:password@ in an address; a bearer or a token of ours; password=…, "secret": "…".
PATTERNS = (
    re.compile(r"(?<=://)[^\s/@]*@"),
    re.compile(r"(?i)(?<=bearer )\S+"),
    re.compile(r"\bweir_[\w-]{16,}"),
    re.compile(
        r"(?i)((?:password|passwd|secret|token|authorization|api_?key)[\"']?\s*[=:]\s*)[\"']?[^\s\"',}]+"
    ),
)


def without_secrets(text: str, environment: Mapping[str, str] = variables.PROCESS) -> str:
    """The text with a sign in place of what is secret in this environment, and of what looks like it."""
    for secret in sorted(_secrets(environment), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    address, bearer, token, named = PATTERNS
    text = token.sub(HIDDEN, bearer.sub(HIDDEN, address.sub(f"{HIDDEN}@", text)))
    return named.sub(lambda found: found[1] + HIDDEN, text)


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    declared = {each.name for each in variables.DECLARED if each.secret}
    families = (variables.PASSWORD_PREFIX, variables.SECRET_PREFIX)
    for name, value in environment.items():
        if name in declared or name.startswith(families):
            words = [value, *value.split(), value.rpartition("@")[0].rpartition(":")[2]]
            yield from (word for word in words if len(word) >= SHORTEST)
