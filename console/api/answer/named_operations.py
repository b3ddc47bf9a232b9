"""Stable operation names: clients are generated from them, so moved code must not rename them."""

from ninja import NinjaAPI
from ninja.operation import Operation


class NamedOperations(NinjaAPI):
    """Names an operation after its function, independently of its module."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        return operation.view_func.__name__
