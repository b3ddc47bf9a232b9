"""A stock app whose task calls a downstream service, if there is one, and notes that it ran."""

import os
import socket
from typing import Any

from celery import Celery

app: Any = Celery("shop", broker=os.environ["SHOP_BROKER"])
app.conf.task_default_queue = "pay"
PORT = int(os.environ.get("SHOP_DOWNSTREAM", "0"))


@app.task(name="shop.pay", ignore_result=True)  # type: ignore[untyped-decorator]
def pay(number: int) -> None:
    if PORT:
        with socket.create_connection(("127.0.0.1", PORT), 60) as connection:
            connection.sendall(b"?")
            connection.recv(1)
    file = os.open(os.environ["SHOP_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{number}\n".encode())  # at once: lines of several processes do not mix
    os.close(file)
