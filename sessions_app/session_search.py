"""Finding sessions: the filters that the API's list and the console share."""

import contextlib
import json
from collections.abc import Collection, Iterable
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, F, Func, OuterRef, Q, QuerySet, TextField, Value

from sessions_app import failures, ids
from sessions_app.models import Entry, Session

_MESSAGES = ("user_message", "assistant_message")


def filtered(
    rows: QuerySet[Session],
    *,
    statuses: Collection[str] | None = None,
    labels: Iterable[str] = (),
    profile: str | None = None,
    parent: UUID | None = None,
    name: str | None = None,
    archived: bool | None = None,
    failed: bool | None = None,
    reason: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> QuerySet[Session]:
    """Those of the rows that fit all that is given. `labels` are `key:value`, `profile` an id or a name."""
    conditions: list[Q] = []
    if statuses is not None:
        conditions.append(Q(status__in=sorted(statuses)))
    for label in labels:
        key, _, value = label.partition(":")
        conditions.append(Q(labels__contains={key: value}))
    if profile is not None:
        try:
            conditions.append(Q(profile_id=ids.decode("prf", profile)))
        except ids.InvalidId:
            conditions.append(Q(profile__name__iexact=profile))
    if parent is not None:
        conditions.append(Q(parent_id=parent))
    if name is not None:
        conditions.append(Q(name__icontains=name))
    if archived is not None:
        conditions.append(Q(archived_at__isnull=not archived))
    if failed is not None:
        ended = failures.failed_sessions(reason=reason if failed else None)
        found = Q(pk__in=ended.values("pk"))
        conditions.append(found if failed else ~found)
    if reason is not None and not failed:
        conditions.append(Q(last_turn__reason=reason))
    if created_after is not None:
        conditions.append(Q(created_at__gt=created_after))
    if created_before is not None:
        conditions.append(Q(created_at__lt=created_before))
    return rows.filter(*conditions)


def speaking_of(rows: QuerySet[Session], text: str, *, in_messages: bool) -> QuerySet[Session]:
    """Those named so, with this id, or with a label of this value; also those whose messages hold the text.

    Messages have no index: the search reads them, newest sessions first, so the caller bounds its time.
    """
    condition = Q(name__icontains=text) | Q(
        Exists(
            Session.objects.filter(pk=OuterRef("pk"))
            .annotate(values=_json_path("labels", "$.*"))
            .filter(values__icontains=_as_in_json(text))
        )
    )
    with contextlib.suppress(ids.InvalidId):
        condition |= Q(pk=ids.decode("ses", text))
    if in_messages:
        said = (
            Entry.objects.filter(session_id=OuterRef("pk"), kind__in=_MESSAGES)
            .annotate(words=_json_path("data", "$.content[*].text"))
            .filter(words__icontains=_as_in_json(text))
        )
        condition |= Q(Exists(said))
    return rows.filter(condition)


def _json_path(field: str, path: str) -> Func:
    """What a path finds in a JSON column, as the text of a JSON list."""
    return Func(
        F(field),
        Value(path),
        function="jsonb_path_query_array",
        template="(%(function)s(%(expressions)s::jsonpath))::text",
        output_field=TextField(),
    )


def _as_in_json(text: str) -> str:
    """The text as PostgreSQL writes it inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
