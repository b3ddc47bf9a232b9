"""Reports reach the console's addresses, so some need its people, their tokens and a plant's sample."""

from tests.console.conftest import _quick_passwords as _quick_passwords
from tests.console.conftest import _uncollected_static_files as _uncollected_static_files
from tests.console.conftest import people as people
from tests.console.conftest import secrets as secrets
