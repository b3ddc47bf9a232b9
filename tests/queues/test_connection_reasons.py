"""Why a server can't be reached is said in plain words, whichever client found it out."""

import socket
from contextlib import closing

import httpx
import psycopg
import pytest
import redis
from kombu import Connection

from common.errors import MAX_CHARACTERS, describe_connection_error
from tests.servers import free_port

UNLISTENED = "no service listens on its port"


def by_socket(port):
    socket.create_connection(("127.0.0.1", port))


def by_http(port):
    httpx.get(f"http://127.0.0.1:{port}/")


def by_redis(port):
    redis.Redis(port=port).ping()


def by_amqp(port):
    with closing(Connection(f"amqp://127.0.0.1:{port}//")) as connection:
        connection.connect()


def by_sql(port):
    psycopg.connect(f"postgresql://127.0.0.1:{port}/db")


@pytest.mark.parametrize("ask", [by_socket, by_http, by_redis, by_amqp, by_sql])
def test_a_port_at_which_nothing_listens_is_said_so_without_a_number_or_an_address(ask):
    with pytest.raises(Exception, match="refused") as failed:
        ask(free_port())
    assert describe_connection_error(failed.value) == UNLISTENED


def test_what_takes_too_long_is_said_so_though_the_error_has_no_words():
    assert describe_connection_error(httpx.ReadTimeout("")) == "it timed out"
    assert describe_connection_error(TimeoutError("timed out")) == "it timed out"


def test_a_name_that_nobody_knows_is_said_so():
    with pytest.raises(OSError, match=r"not known|resolution|hostname") as failed:
        socket.getaddrinfo("weir.invalid", 1)
    assert "host" in describe_connection_error(failed.value) and "[" not in describe_connection_error(failed.value)


def test_any_other_error_is_its_first_line_of_bounded_length():
    assert describe_connection_error(ValueError("Server disconnected.\nmore")) == "Server disconnected"
    assert describe_connection_error(ValueError()) == "ValueError"
    assert len(describe_connection_error("x" * 1000)) == MAX_CHARACTERS
