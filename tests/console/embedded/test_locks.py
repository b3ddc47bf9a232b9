"""The locked requirements install with pip as well as with uv."""

import re
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("requirements.lock", "requirements-dev.lock")
PINNED = re.compile(r"^([\w.-]+)(?:\[([\w,.-]+)\])?==", re.MULTILINE)


def test_extras_that_packages_ask_for_are_pinned_with_them():
    """Without, pip takes the newest version for a package with an extra, and refuses it for want of a hash:
    each new release of it would break the installation.
    """
    found = [match for lock in LOCKS for match in PINNED.findall((ROOT / lock).read_text())]
    pinned = {name.lower(): set(extras.split(",")) for name, extras in found}
    asked = [
        (requirement.name.lower(), extra)
        for each in distributions()
        if each.name.lower() in pinned
        for requirement in map(Requirement, each.requires or ())
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        for extra in requirement.extras
    ]
    assert asked
    assert not [(name, extra) for name, extra in asked if name in pinned and extra not in pinned[name]]
