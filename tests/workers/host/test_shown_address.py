"""What is shown of an address to those who may not change it."""

import pytest

from workers.host.egress import mask_address


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://alertmanager:9093", "http://alertmanager:9093"),
        ("https://desk/", "https://desk"),
        ("https://chat.example/T0/key", "https://chat.example/…"),
        ("https://desk/?token=key", "https://desk/…"),
        ("https://desk#key", "https://desk/…"),
        ("postgresql://me:key@database:5432/events", "postgresql://database:5432/…"),
        ("https://[::1]:8443/key", "https://[::1]:8443/…"),
        ("https://[key", "…"),
        ("https://desk:key/", "…"),
        ("key", "…"),
    ],
)
def test_an_address_is_shown_up_to_its_port(url, shown):
    assert mask_address(url) == shown
