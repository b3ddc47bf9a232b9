"""The digest of a form's original values.

A change based on an older state is rejected, so that nobody overwrites another change.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from common.errors import BadInput


def digest_of(shown: Mapping[str, Any]) -> str:
    """Return the digest of a thing as shown."""
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def check_unchanged(name: str, shown: Mapping[str, Any], digest: str) -> None:
    """Raise `BadInput` if the thing is not as it was shown. digest: "" if it was not shown."""
    if digest and digest != digest_of(shown):
        raise BadInput("digest", f"{name} was changed in the meantime; reload the page and repeat your change.")
