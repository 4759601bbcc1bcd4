"""What a client says over its socket about the session it follows, as the REST calls of the same name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, StrictStr

from sessions_app import control, idempotency, ids, inputs
from sessions_app.access import Access, external
from sessions_app.api import session_shapes as shapes
from sessions_app.api.base import checked
from sessions_app.api.fields import ActorRef
from sessions_app.api.session_requests import NoBody, SubmitInput
from sessions_app.api.session_views import new_input
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Invalid
from sessions_app.feed.frames import register_frame
from sessions_app.idempotency import Answer


class InputFrame(SubmitInput):
    """The body of `POST /sessions/{id}/inputs`, and the key that makes it safe to send again."""

    idempotency_key: Annotated[StrictStr, Field(max_length=255)]


@dataclass(frozen=True, slots=True)
class _Caller:
    access: Access

    def actor(self, named: ActorRef | None) -> Actor:
        return self.access.actor if named is None else external(named)


def submit(access: Access, session: UUID | None, frame: dict[str, Any]) -> Mapping[str, Any]:
    """Store an input. Its key is one with the header of the REST call, so either may repeat the other."""
    key = _followed(session)
    body = checked(InputFrame, frame)
    new = new_input(_Caller(access), body)

    def effect() -> Answer:
        row = inputs.submit_input(
            session=key,
            content=new.content,
            delivery=new.delivery,
            actor=new.actor,
            cancel_open=new.cancel_open,
        )
        return Answer(202, shapes.input_(shapes.input_rows().get(pk=row.pk)))

    said = {name: value for name, value in frame.items() if name != "idempotency_key"}
    answer = idempotency.once(
        holder=access.holder,
        operation=f"POST /api/v1/sessions/{ids.encode('ses', key)}/inputs",
        key=body.idempotency_key,
        request=idempotency.fingerprint(said, ""),
        effect=effect,
    )
    return {"input": answer.body, "replayed": answer.replayed}


def cancel(access: Access, session: UUID | None, frame: dict[str, Any]) -> Mapping[str, Any]:
    """End the open turn."""
    key = _followed(session)
    checked(NoBody, frame)
    control.cancel(session=key, actor=access.actor)
    return {"session": shapes.session(shapes.session_row(key, project=access.project.pk))}


def _followed(session: UUID | None) -> UUID:
    if session is None:
        raise Invalid("this goes over the socket of a session")
    return session


def register() -> None:
    """Called where sockets are served."""
    register_frame("input", submit)
    register_frame("cancel", cancel)
