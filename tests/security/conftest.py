"""The attacks need the console's people, their browsers and tokens, and a plant's sample."""

from collections.abc import Iterator

import pytest

from tests.console.conftest import _quick_passwords as _quick_passwords
from tests.console.conftest import _uncollected_static_files as _uncollected_static_files
from tests.console.conftest import application as application
from tests.console.conftest import browsers as browsers
from tests.console.conftest import people as people
from tests.console.conftest import poisoned as poisoned
from tests.console.conftest import secrets as secrets
from tests.console.conftest import snapshot as snapshot
from tests.console.conftest import stored_snapshot as stored_snapshot
from tests.console.served import Served, serving
from tests.servers import Server


@pytest.fixture(scope="module")
def served(
    _control_server: Server, _node_servers: dict[str, Server], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A console as it is served, with the limits that it has by itself."""
    with serving(_control_server, _node_servers, tmp_path_factory.mktemp("console")) as console:
        yield console
