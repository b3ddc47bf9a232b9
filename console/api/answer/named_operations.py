"""Operations with names that outlast a move of our code: clients are generated from them."""

from ninja import NinjaAPI
from ninja.operation import Operation


class NamedOperations(NinjaAPI):
    """An operation is called as its function is, and by nothing of where that stands."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        return operation.view_func.__name__
