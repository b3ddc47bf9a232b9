"""A running plant whose settings the bench changes through the API, as an administrator does."""

from contextlib import suppress
from typing import Any

import httpx

from bench.plant.burst import SET_HANDLER
from bench.plant.running_plant import RunningPlant


class ApiPlant(RunningPlant):
    """A running plant with an API client. Use it as a context manager, then call `sign_in`."""

    api: httpx.Client

    def __exit__(self, *raised: object) -> None:
        with suppress(AttributeError):  # it was never signed in
            self.api.close()
        super().__exit__(*raised)

    def sign_in(self) -> None:
        """Sign in again: consequential actions require a login within the last ten minutes."""
        with suppress(AttributeError):
            self.api.close()
        self.api = self.log_in()

    def ask(self, path: str, **body: Any) -> Any:
        """Send a POST request to the API as an administrator."""
        headers = {"X-CSRFToken": self.api.cookies["csrftoken"], "Referer": self.url}
        content = {"reason": "A scenario.", **body}
        answer = self.api.post(f"/api/v1/{path}", json=content, headers=headers)
        if answer.is_error:
            raise httpx.HTTPStatusError(f"{path}: {answer.text}", request=answer.request, response=answer)
        return answer.json()

    def answer(self, path: str, **asked: Any) -> Any:
        """Send a GET request to the API."""
        return self.api.get(f"/api/v1/{path}", params=asked).raise_for_status().json()

    def define(self, queue: str, **fields: Any) -> None:
        """Change a queue's definition through the API."""
        digest = self.answer(f"queues/{queue}/definition")["digest"]
        self.ask(f"queues/{queue}/definition", digest=digest, **fields)

    def set_handler(self, queue: str, handler: str, **options: Any) -> None:
        """Change a queue's handler without the API, as a deployment of new handler code does."""
        lines = SET_HANDLER.format(queue=queue, handler=handler)
        more = f"handler={handler!r}, handler_options={options!r}"
        self.manage("shell", "-c", lines.replace(f"handler={handler!r}", more)).check_returncode()
