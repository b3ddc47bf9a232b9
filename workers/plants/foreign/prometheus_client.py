"""The part of Prometheus' HTTP API that Weir uses: the numbers of queries.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import math
from typing import Any

from common.parsing import parse_measured_number
from workers.plants.foreign.answer_limit import answer_seconds
from workers.plants.foreign.client import PlantClient
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

UNAVAILABLE = 503
# A note about the query, in `infos` since 2.54. Before (2.48 to 2.53) it is among the warnings.
NOTE = "PromQL info:"


class PartialAnswer(InvalidPlantResponse):
    """A part of what is queried did not answer, such as a Thanos store that is away.

    value: of the rest; it is shown with the reason, and nothing is decided on it.
    """

    def __init__(self, message: str, value: float | None) -> None:
        super().__init__(message)
        self.value = value


class PrometheusClient:
    """The client of one server."""

    def __init__(self, client: PlantClient, path: str = "") -> None:
        self._client, self._path = client, f"{path.strip('/')}/" if path.strip("/") else ""

    def query_value(self, query: str) -> float | None:
        """Return the value of a scalar, or of the only series; None if there is none, or it is not a number.

        Raise `PlantUnavailable`, `PartialAnswer` with the value of the parts that answered, and `InvalidPlantResponse`
        for more than one series and for invalid PromQL.
        """
        data, missing = self._run_query(query)
        value = self._parse_single_value(query, data)
        if missing:
            raise PartialAnswer(missing, value)
        return value

    def _parse_single_value(self, query: str, data: Any) -> float | None:
        try:
            kind, result = data["resultType"], data["result"]
            if kind == "scalar":
                return _parse_number(result[1])
            if kind != "vector":
                raise InvalidPlantResponse(
                    f"{self._client.name}: {query[:80]} returned a {kind} instead of a single number."
                )
            if len(result) > 1:
                raise InvalidPlantResponse(
                    f"{self._client.name}: {query[:80]} returned {len(result)} series; combine"
                    " them with sum() or"
                    " max()."
                )
            return _parse_number(result[0]["value"][1]) if result else None
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._build_error(error) from error

    def _run_query(self, query: str) -> tuple[Any, str]:
        """Return the result of a query, and which part of it is missing ("" for none).

        Raise `PlantUnavailable` and `InvalidPlantResponse`.
        """
        # Weir stops waiting at that time, so the server stops, too. It takes no fractions of a unit.
        document = self._document("query", query=query, timeout=f"{round(1_000 * answer_seconds())}ms")
        warnings = document.get("warnings") or []
        texts = [str(warning) for warning in (warnings if isinstance(warnings, list) else [warnings])]
        missing = [text for text in texts if not text.lstrip().startswith(NOTE)]
        said = f"{self._client.name} returned a partial result: {missing[0][:300]}" if missing else ""
        return document.get("data"), said

    def _document(self, endpoint: str, **query: Any) -> dict[str, Any]:
        """Return the data of a successful answer."""
        status, document = self._client.ask("GET", f"{self._path}api/v1/{endpoint}", **query)
        if isinstance(document, dict) and document.get("status") == "success":
            return document
        said = document.get("error") if isinstance(document, dict) else None
        message = f"{self._client.name} returned {status}: {str(said or 'no reason given')[:300]}"
        raise PlantUnavailable(message) if status == UNAVAILABLE else InvalidPlantResponse(message)

    def _build_error(self, error: Exception) -> InvalidPlantResponse:
        return InvalidPlantResponse(f"{self._client.name} returned a response that is not from Prometheus ({error!r}).")


def _parse_number(text: Any) -> float | None:
    """Prometheus writes numbers as texts, with NaN and +Inf among them."""
    value = parse_measured_number(text)
    return value if math.isfinite(value) else None
