"""What a form was filled from, as a digest: a change that was made from something older is refused, so
that nobody overwrites what another has changed meanwhile.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from queues.errors import BadInput


def digest_of(shown: Mapping[str, Any]) -> str:
    """Of a thing as it was shown."""
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def demand_unchanged(name: str, shown: Mapping[str, Any], digest: str) -> None:
    """Raises BadInput where the thing is not as it was shown. digest: "" of who has seen nothing of it."""
    if digest and digest != digest_of(shown):
        raise BadInput("digest", f"{name} was changed meanwhile; reload the page and change it again.")
