"""Connections that a Spark worker keeps."""

import threading

import pytest

from tests.servers import new_server
from workers.pipeline.events.containers import connect_to_control

AWAY_SECONDS = 5.0  # longer than redis-py tries by itself


@pytest.mark.slow
def test_a_control_server_that_is_started_again_is_waited_for(tmp_path):
    server = new_server(tmp_path)
    try:
        with connect_to_control(server.url) as control:
            control.set("weir:kept", "1")
            server.kill()
            later = threading.Timer(AWAY_SECONDS, server.start)
            later.start()
            assert control.get("weir:kept") == b"1"
            later.join()
    finally:
        server.close()
