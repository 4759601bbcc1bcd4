"""`Idempotency-Key`: one effect for equal requests, and the first answer again (I4).

`once` runs an effect inside a transaction of its own and stores the answer in that same transaction, so a crash
leaves neither or both. Services called inside find an open transaction and join it; what they do on commit
happens at this commit.

Twins meet at an advisory lock on (holder, operation, key) that ends with the transaction. One executes. The
others wait for it, but not for long: then they are told that it is in progress. Whoever gets the lock looks for
the record with a new statement and so sees what the one before it committed.

Only answers of executed effects are stored. An error rolls everything back, its record too: the same key may
be used again for the corrected request, or for the same one once the conflict is gone.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.utils.crypto import salted_hmac

from sessions_app.errors import Conflict, Invalid
from sessions_app.models import IdempotencyRecord
from sessions_app.models.fields import ClockTimestamp

TWIN_WAIT = 1.5  # seconds that a request waits for its twin before it is told to come back
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_MAX_OPERATION = 500

TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s)"
WAIT_LOCK = "SELECT set_config('lock_timeout', %s, true)"
LOCK = "SELECT pg_advisory_xact_lock(%s)"
WAIT_AS_BEFORE = "SET LOCAL lock_timeout TO DEFAULT"


class IdempotencyConflict(Conflict):
    """This Idempotency-Key was used for a different request."""

    code = "idempotency_conflict"


class IdempotencyInProgress(Conflict):
    """An equal request with this Idempotency-Key is being executed."""

    code = "idempotency_in_progress"
    retry_after = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered with; `body` is JSON."""

    status: int
    body: Any
    replayed: bool = False


def check_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise Invalid(
            "Idempotency-Key has 1 to 255 visible ASCII characters",
            errors=[
                {"path": "/Idempotency-Key", "code": "malformed", "message": "1 to 255 visible characters"}
            ],
        )
    return key


def fingerprint(*parts: Any) -> str:
    """Of a request's content, JSON values; the order of keys is no difference."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def once(
    *,
    holder: str,
    operation: str,
    key: str,
    request: str,
    effect: Callable[[], Answer],
    sealed: bool = False,
) -> Answer:
    """The answer of `effect`, or of the equal request before it (`request` is its fingerprint).

    `sealed` answers are stored encrypted, for those that hold a secret. Raises `IdempotencyConflict` and
    `IdempotencyInProgress`, and whatever `effect` raises.
    """
    check_key(key)
    if len(operation) > _MAX_OPERATION:
        operation = operation[:400] + hashlib.sha256(operation.encode()).hexdigest()
    with transaction.atomic(durable=not connection.in_atomic_block):
        _take_turn(f"{holder}\n{operation}\n{key}")
        record = IdempotencyRecord.objects.filter(holder=holder, operation=operation, key=key).first()
        if record is not None:
            if record.fingerprint != request:
                raise IdempotencyConflict
            return Answer(record.status, _unpacked(record.body), replayed=True)
        answer = effect()
        IdempotencyRecord.objects.create(
            holder=holder,
            operation=operation,
            key=key,
            fingerprint=request,
            status=answer.status,
            body=_packed(answer.body, sealed=sealed),
        )
        return answer


def delete_expired(*, limit: int = 1000) -> int:
    """Drop answers older than the retention; a housekeeping duty, called from time to time."""
    age = timedelta(seconds=settings.TENURE.idempotency_retention)
    old = IdempotencyRecord.objects.filter(created_at__lt=ClockTimestamp() - age)
    with transaction.atomic(durable=not connection.in_atomic_block):
        picked = list(
            old.order_by("created_at")
            .select_for_update(skip_locked=True)
            .values_list("pk", flat=True)[:limit]
        )
        deleted, _ = IdempotencyRecord.objects.filter(pk__in=picked).delete()
    return deleted


def _take_turn(name: str) -> None:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute(TRY_LOCK, [number])
        if cursor.fetchone()[0]:
            return
        cursor.execute(WAIT_LOCK, [f"{int(TWIN_WAIT * 1000)}ms"])
        try:
            cursor.execute(LOCK, [number])
        except OperationalError as error:
            if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise IdempotencyInProgress from None
            raise
        cursor.execute(WAIT_AS_BEFORE)


def _packed(body: Any, *, sealed: bool) -> Any:
    """As one JSON string, so that a replay has the same bytes: jsonb would reorder an object's keys."""
    text = json.dumps(body)
    return {"sealed": _seal().encrypt(text.encode()).decode()} if sealed else text


def _unpacked(stored: Any) -> Any:
    if isinstance(stored, str):
        return json.loads(stored)
    try:
        return json.loads(_seal().decrypt(stored["sealed"].encode()))
    except InvalidToken:
        raise Conflict(
            "the first answer can't be shown again: this deployment's secret key changed"
        ) from None


def _seal() -> Fernet:
    digest = salted_hmac("tenure.idempotency", "sealed answers", algorithm="sha256").digest()
    return Fernet(base64.urlsafe_b64encode(digest))
