"""The fingerprint of a failure: failures with the same cause have the same one, whatever the task's arguments.

It is made of the task's name, the exception's type, and the innermost frames of the traceback without line numbers.
Without a traceback, the message takes the place of the frames, without numbers, identifiers, and quoted texts.
"""

import hashlib
import re

FRAMES = 10
MAX_MESSAGE = 200
_FRAME = re.compile(r'File "(?P<file>[^"\n]{1,500})", line \d+, in (?P<function>[^\n]{1,200})')
_TYPE = re.compile(r"[\w.]{1,100}")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_IDENTIFIER = re.compile(r"\b(?=\w*\d)[\w-]+\b")
_NUMBER = re.compile(r"\d+")


def compute_fingerprint(name: str, error: str, traceback: str) -> str:
    """Return the fingerprint, 16 hexadecimal digits. error: as Python prints an exception: `KeyError('x')`."""
    parts = [name, parse_exception_type(error)]
    frames = _FRAME.findall(traceback)[-FRAMES:]
    parts += [f"{_shorten_path(file)} {function}" for file, function in frames] or [normalize_message(error)]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def parse_exception_type(error: str) -> str:
    """Return the exception's type, without its module."""
    match = _TYPE.match(error)
    return match[0].rpartition(".")[2] if match else ""


def normalize_message(error: str) -> str:
    """Return the error without what differs between failures of one cause: quoted texts, identifiers, and numbers."""
    match = _TYPE.match(error)
    kind = match[0] if match else ""
    message = error[len(kind) :]
    if is_call := message.startswith("(") and message.endswith(")"):
        message = message[1:-1]
        if len(message) > 1 and message[0] in "'\"" and message[-1] == message[0]:
            message = message[1:-1]
    for pattern in (_QUOTED, _IDENTIFIER, _NUMBER):
        message = pattern.sub("…", message)
    return (f"{kind}({message})" if is_call else f"{kind}{message}")[:MAX_MESSAGE]


def _shorten_path(file: str) -> str:
    """Return the end of a path: the folder of a release differs between deploys."""
    return "/".join(file.split("/")[-2:])
