"""What PostgreSQL has and Django's ORM lacks: the clock, and transaction ids."""

from typing import Any

from django.db import models


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


class Xid8Field(models.BigIntegerField):
    """A 64-bit transaction id (`xid8`); compared with snapshots by the project feed (F2)."""

    def db_type(self, connection: Any) -> str:
        return "xid8"

    def from_db_value(self, value: Any, *_: Any) -> int | None:
        return None if value is None else int(value)


class CreatedAt(models.DateTimeField):
    """Set by the database's clock at insert."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("db_default", ClockTimestamp())
        kwargs.setdefault("editable", False)
        super().__init__(**kwargs)
