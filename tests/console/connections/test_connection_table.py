"""A web process keeps its connections within limits, and closes those that keep it waiting."""

import pytest

from console.connections.client_addresses import normalize_address, parse_networks
from console.connections.connection_table import MAX_CLOSING_SECONDS, MAX_HEAD_SECONDS, ConnectionTable

ATTACKER, SOMEBODY, PROXY = "198.51.100.9", "203.0.113.7", "10.0.3.4"


class FakeTransport:
    """A transport that notes how it was ended."""

    def __init__(self):
        self.is_aborted = self.is_closed = False

    def abort(self):
        self.is_aborted = True

    def close(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed


class Clock:
    """A clock that stands until it is set."""

    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    return ConnectionTable(8, 4, parse_networks("10.0.3.0/24"), clock)


def connect(table, address):
    transport = FakeTransport()
    table.enter(transport, address, transport.close)
    return transport


def work(table, address):
    """Connect, and send a whole request."""
    transport = connect(table, address)
    table.record_received_head(transport)
    table.request_received(transport)
    return transport


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1::1", "2001:db8:0:1::"),
        ("2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:1::"),
        ("2001:db8:0:2::1", "2001:db8:0:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("testclient", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_limits_count_an_ipv4_address_or_an_ipv6_network(address, counted):
    assert normalize_address(address) == counted


def test_a_request_head_that_is_late_ends_its_connection(table, clock):
    late, idle, answered = connect(table, ATTACKER), work(table, SOMEBODY), work(table, SOMEBODY)
    clock.seconds = MAX_HEAD_SECONDS
    table.record_awaited_head(idle)  # answered just now
    clock.seconds += 1
    table.sweep()
    assert (late.is_closed, idle.is_closed, answered.is_closed) == (True, False, False)


def test_a_closed_connection_whose_last_bytes_nobody_reads_is_reset(table, clock):
    unread = work(table, ATTACKER)
    unread.close()
    table.sweep()
    clock.seconds = MAX_CLOSING_SECONDS - 1
    table.sweep()
    assert not unread.is_aborted
    clock.seconds = MAX_CLOSING_SECONDS + 1
    table.sweep()
    assert unread.is_aborted


def test_a_new_connection_replaces_the_longest_waiting_of_its_own_address(table):
    other = connect(table, SOMEBODY)
    first, *rest = [connect(table, ATTACKER) for _ in range(4)]
    newest = connect(table, ATTACKER)
    assert first.is_aborted
    assert not any(each.is_aborted for each in (other, newest, *rest))
    assert len(table) == 5


def test_a_connection_that_is_being_answered_is_never_replaced(table):
    at_work = [work(table, ATTACKER) for _ in range(4)]
    newest = connect(table, ATTACKER)
    assert newest.is_aborted
    assert not any(each.is_aborted for each in at_work)


@pytest.mark.parametrize("addresses", ["2001:db8::{:x}", "::ffff:198.51.100.9"])
def test_one_customer_can_not_multiply_its_addresses(table, addresses):
    for number in range(1, 20):
        connect(table, addresses.format(number))
    assert len(table) == 4


def test_a_full_process_makes_room_at_the_address_that_waits_most(table):
    of_somebody = connect(table, SOMEBODY)
    of_attacker = [connect(table, ATTACKER) for _ in range(4)]
    for number in range(3):
        connect(table, f"192.0.2.{number}")
    newest = connect(table, "192.0.2.200")
    assert of_attacker[0].is_aborted
    assert not of_somebody.is_aborted and not newest.is_aborted
    assert len(table) == 8


def test_a_trusted_proxy_may_hold_more_connections_and_keeps_them(table):
    of_proxy = [connect(table, PROXY) for _ in range(8)]
    newest = connect(table, SOMEBODY)
    assert not any(each.is_aborted for each in of_proxy)
    assert newest.is_aborted
