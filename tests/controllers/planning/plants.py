"""Models of small plants for the tests of the planner."""

from typing import Any

from msgspec.structs import replace

from controllers.planning.model import ModeledNodes, ModeledPool, ModeledQueue, ModeledStage, ModeledType, PlantModel

ORDER = ModeledType(share=0.8, lost_price=0.5)
CLICK = ModeledType(share=0.2, lost_price=0.000001)


def orders(rate: float = 500.0, **values: Any) -> ModeledQueue:
    given = {"types": {"order": ORDER}, "bound_seconds": 10.0, "bad_second_price": 0.05, **values}
    return ModeledQueue(forecast_per_second=(rate,), **given)


def workers(units: int = 6, **values: Any) -> ModeledStage:
    given = {"queue": "orders", "per_second": 100.0, "price_per_hour": 0.4, "change_price": 0.001, **values}
    return ModeledStage(units=units, **given)


def nodes(units: int = 2, **values: Any) -> ModeledNodes:
    given = {"per_second": 400.0, "price_per_hour": 1.0, "start_seconds": 60.0, "change_price": 0.005, **values}
    return ModeledNodes(units=units, **given)


def plant(**values: Any) -> PlantModel:
    """Return one queue with workers, nodes, and a pool; values replace its parts."""
    model = PlantModel(
        queues={"orders": orders()},
        stages={"workers": workers(pool="hosts")},
        nodes={"nodes": nodes(maximum=4)},
        pools={"hosts": ModeledPool(units=3, slots=4, price_per_hour=0.1, maximum=5)},
    )
    return replace(model, **values)
