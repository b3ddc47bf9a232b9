"""Why a server can't be reached, in words for a page. Clients of all kinds hand on the system's own text,
with a number before it or an address behind: `[Errno 111] Connection refused`.
"""

REASONS = {
    "connection refused": "nothing listens at its port",
    "no route to host": "there is no route to its host",
    "network is unreachable": "there is no route to its network",
    "connection reset by peer": "it ends the connection",
    "broken pipe": "it ends the connection",
    "connection timed out": "its host does not answer",
    "name or service not known": "no such host is known",
    "no address associated with hostname": "no such host is known",
    "temporary failure in name resolution": "the name of its host can't be resolved at present",
}
MOST_CHARACTERS = 200


def reason(error: object) -> str:
    """The first line of an error, or the plain words for what the system says in it."""
    text = str(error).strip()
    lower = text.lower()
    for system, plain in REASONS.items():
        if system in lower:
            return plain
    line = (text.splitlines() or [type(error).__name__])[0]
    return line[:MOST_CHARACTERS].rstrip(".")
