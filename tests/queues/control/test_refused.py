"""A server that takes no writes is waited for like one that is away."""

import pytest
import redis

from queues.control.connection import WritesRefused, connect
from workers.coordination.celery_worker import PromptConnection

REFUSAL = "return redis.error_reply('MISCONF Errors writing to the AOF file: No space left on device')"


@pytest.mark.parametrize("parser", ["hiredis", "python"])
def test_the_refusal_of_a_full_disk_is_a_connection_that_fails(control_server, parser):
    from redis._parsers import _HiredisParser, _RESP2Parser

    options = {"retry": None, "parser_class": {"hiredis": _HiredisParser, "python": _RESP2Parser}[parser]}
    with connect(control_server.url, **options) as client, pytest.raises(WritesRefused, match="No space left"):
        client.eval(REFUSAL, 0)


def test_in_a_transaction_too(control_server):
    with connect(control_server.url, retry=None) as client, client.pipeline(transaction=False) as pipe:
        pipe.ping()
        pipe.eval(REFUSAL, 0)
        with pytest.raises(WritesRefused):
            pipe.execute()


def test_a_worker_of_celery_connects_anew_instead_of_ending(control_server):
    with PromptConnection(control_server.url) as broker:
        assert issubclass(WritesRefused, broker.connection_errors)
        assert not issubclass(redis.ResponseError, broker.connection_errors)
