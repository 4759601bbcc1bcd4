"""What PostgreSQL has and Django's ORM lacks: the clock, and transaction ids."""

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    # Generic for the type checker only.
    BigIntegerField = models.BigIntegerField[int, int]
    DateTimeField = models.DateTimeField[Any, Any]
else:
    BigIntegerField = models.BigIntegerField
    DateTimeField = models.DateTimeField


class ClockTimestamp(models.Func):
    """`clock_timestamp()`: the time now, also after a lock wait inside a statement.

    `models.functions.Now` is `statement_timestamp()`, taken before a lock wait; no lease or deadline uses it.
    """

    function = "clock_timestamp"
    arity = 0
    output_field = models.DateTimeField()


class CurrentTransactionId(models.Func):
    function = "pg_current_xact_id"
    arity = 0


class Xid8Field(BigIntegerField):
    """A 64-bit transaction id (`xid8`); compared with snapshots by the project feed (F2)."""

    def db_type(self, connection: Any) -> str:
        return "xid8"

    def from_db_value(self, value: Any, *_: Any) -> int | None:
        return None if value is None else int(value)


class CreatedAt(DateTimeField):
    """Set by the database's clock at insert."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("db_default", ClockTimestamp())
        kwargs.setdefault("editable", False)
        super().__init__(**kwargs)
