"""The attacks need the console's people, their browsers and tokens, and a plant's sample."""

from tests.console.conftest import _quick_passwords as _quick_passwords
from tests.console.conftest import _uncollected_static_files as _uncollected_static_files
from tests.console.conftest import application as application
from tests.console.conftest import browsers as browsers
from tests.console.conftest import people as people
from tests.console.conftest import poisoned as poisoned
from tests.console.conftest import secrets as secrets
from tests.console.conftest import snapshot as snapshot
from tests.console.conftest import stored_snapshot as stored_snapshot
