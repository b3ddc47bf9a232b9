"""An IPv6 address that carries an IPv4 address leads nowhere that the IPv4 address may not lead."""

import ipaddress

import pytest

from common.errors import Forbidden
from workers.host import egress

# Mapped; compatible; translated; NAT64; local NAT64, behind 96, 48 (one with a suffix), 56 and 64 bits; 6to4; Teredo,
# of the server and of the client (inverted); ISATAP.
LOOPBACK = """
::ffff:127.0.0.1 ::127.0.0.1 ::ffff:0:127.0.0.1 ::ffff:0:7f00:1 64:ff9b::127.0.0.1
64:ff9b:1::127.0.0.1 64:ff9b:1:abcd:0:1234:7f00:1 64:ff9b:1:7f00:0:100:: 64:ff9b:1:7f00:0:100:0:1
64:ff9b:1:a7f:0:1:: 64:ff9b:1:a0a:7f:0:100:0 2002:7f00:1:: 2002:7f00:1:2:3:4:5:6
2001:0:7f00:1:0:0:f5fe:fdfc 2001:0:a01:203:0:0:80ff:fffe fd00::5efe:127.0.0.1 2001:db8::200:5efe:7f00:1
"""
METADATA = ("::ffff:0:169.254.169.254", "64:ff9b:1::a9fe:a9fe", "64:ff9b::6464:64c8", "2002:a9fe:a9fe::")
GOOD = """
64:ff9b::10.1.2.3 64:ff9b:1::10.1.2.3 64:ff9b:1:a01:2:300:: ::ffff:0:10.1.2.3 ::ffff:10.1.2.3 2002:a01:203::1
2001:0:a01:203:0:0:f5fe:fdfc fd00::5efe:10.1.2.3 2001:db8::1 fd12:3456::7f00:1
"""


@pytest.fixture(autouse=True)
def nothing_allowed(settings):
    settings.WEIR_EGRESS_ALLOW = ""


@pytest.mark.parametrize("text", [*LOOPBACK.split(), *METADATA])
def test_a_carried_address_is_refused_when_typed_and_when_connected_to(text):
    assert egress.explain_refusal(ipaddress.ip_address(text))
    with pytest.raises(Forbidden, match="WEIR_EGRESS_ALLOW"):
        egress.check_url(f"http://[{text}]:8080/")
    with pytest.raises(egress.AddressRefused, match="WEIR_EGRESS_ALLOW"):
        egress.resolve_allowed_addresses("desk.example", 8080, lambda *said: ["10.1.2.3", text])


@pytest.mark.parametrize("text", GOOD.split())
def test_an_address_that_carries_one_of_the_site_is_allowed(text):
    assert egress.explain_refusal(ipaddress.ip_address(text)) == ""


@pytest.mark.parametrize("text", LOOPBACK.split())
def test_whoever_allows_loopback_allows_it_carried_too(text, settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    assert egress.explain_refusal(ipaddress.ip_address(text)) == ""


@pytest.mark.parametrize("text", ["64:ff9b:1::a9fe:a9fe", "::ffff:0:169.254.169.254"])
def test_an_allowed_ipv6_network_does_not_open_what_it_carries(text, settings):
    settings.WEIR_EGRESS_ALLOW = "64:ff9b:1::/48 ::ffff:0:0:0/96"
    assert "link-local" in egress.explain_refusal(ipaddress.ip_address(text))
