"""A running plant whose settings change through its API, as its administrator changes them."""

from contextlib import suppress
from typing import Any

import httpx

from bench.plant.burst import SET_HANDLER
from bench.plant.running_plant import RunningPlant


class ApiPlant(RunningPlant):
    """Use as a context, then `sign_in`."""

    api: httpx.Client

    def __exit__(self, *raised: object) -> None:
        with suppress(AttributeError):  # it was never signed in
            self.api.close()
        super().__exit__(*raised)

    def sign_in(self) -> None:
        """Anew: acts of consequence take a login of the last ten minutes."""
        with suppress(AttributeError):
            self.api.close()
        self.api = self.log_in()

    def ask(self, path: str, **body: Any) -> Any:
        """POST to the API as its administrator."""
        headers = {"X-CSRFToken": self.api.cookies["csrftoken"], "Referer": self.url}
        content = {"reason": "A scenario.", **body}
        answer = self.api.post(f"/api/v1/{path}", json=content, headers=headers)
        if answer.is_error:
            raise httpx.HTTPStatusError(f"{path}: {answer.text}", request=answer.request, response=answer)
        return answer.json()

    def answer(self, path: str, **asked: Any) -> Any:
        """GET of the API."""
        return self.api.get(f"/api/v1/{path}", params=asked).raise_for_status().json()

    def define(self, queue: str, **fields: Any) -> None:
        """Change a queue as people do."""
        digest = self.answer(f"queues/{queue}/definition")["digest"]
        self.ask(f"queues/{queue}/definition", digest=digest, **fields)

    def set_handler(self, queue: str, handler: str, **options: Any) -> None:
        """Change it behind the console's back, as a deploy of the handler's own code would."""
        lines = SET_HANDLER.format(queue=queue, handler=handler)
        more = f"handler={handler!r}, handler_options={options!r}"
        self.manage("shell", "-c", lines.replace(f"handler={handler!r}", more)).check_returncode()
