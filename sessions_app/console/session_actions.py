"""What people do on a session's page. Every action calls the service that the API calls, and answers with little:
what it changed comes back to all who watch, through the session's feed.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from sessions_app import access, content, control, idempotency, ids, inputs, rewinding, session_service
from sessions_app.console.pages import ConsolePage, toast
from sessions_app.console.session_page import SessionDoor, address_of
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Conflict, Invalid, NotFound
from sessions_app.idempotency import Answer, IdempotencyConflict
from sessions_app.models import Delivery, Input, InputState, Session
from sessions_app.session_service import Fork
from sessions_app.text import clean_text

MAX_FILES = 20
SAID_BEFORE = "What you sent before has arrived after all. Send again to say this too."


class Speak(SessionDoor):
    def post(self, request: HttpRequest, session: str) -> HttpResponse:
        """What the composer sends: text, files that were uploaded before, and how to deliver it.

        `key` makes a repeated request the same message, also after an answer was lost on its way.
        """
        row = self.found(session)
        blocks = content.parse(_said(request))
        delivery = Delivery.STEERING if request.POST.get("delivery") == "steering" else Delivery.QUEUED
        cancel_open = delivery == Delivery.STEERING and request.POST.get("cancel_open") == "1"

        def effect() -> Answer:
            made = inputs.submit_input(
                session=row.pk,
                content=blocks,
                actor=self.access.actor,
                delivery=delivery,
                cancel_open=cancel_open,
            )
            return Answer(202, {"input": ids.encode("inp", made.pk)})

        key = request.POST.get("key", "")
        if key:
            try:
                idempotency.once(
                    holder=self.access.holder,
                    operation=f"console {request.path}",
                    key=key,
                    request=idempotency.fingerprint(blocks, delivery.value, cancel_open),
                    effect=effect,
                )
            except IdempotencyConflict:
                raise Conflict(SAID_BEFORE) from None
        else:
            effect()
        return self.done(row)

    def done(self, row: Session) -> HttpResponse:
        if self.is_fragment:
            return HttpResponse(status=204, headers={"HX-Trigger": "console:said"})
        return HttpResponseRedirect(address_of(row.pk))


def _said(request: HttpRequest) -> list[dict[str, Any]]:
    text = clean_text(request.POST.get("text", ""))
    files = request.POST.getlist("artifact")
    if len(files) > MAX_FILES:
        raise Invalid(f"at most {MAX_FILES} files in one message")
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text.strip() else []
    blocks += [{"type": "media", "artifact": file} for file in files]
    if not blocks:
        raise Invalid("There is nothing in the message yet.")
    return blocks


type Action = Callable[[Session, Actor], object]

ACTIONS: Mapping[str, Action] = {
    "cancel": lambda row, actor: control.cancel(session=row.pk, actor=actor),
    "archive": lambda row, actor: control.archive(session=row.pk, actor=actor),
    "restore": lambda row, actor: control.restore(session=row.pk, actor=actor),
    "compact": lambda row, actor: control.request_compaction(session=row.pk, actor=actor),
    "retry": lambda row, actor: rewinding.retry(session=row.pk, actor=actor),
}


class Act(SessionDoor):
    def post(self, request: HttpRequest, session: str, action: str) -> HttpResponse:
        """One of `ACTIONS`."""
        row = self.found(session)
        act = ACTIONS.get(action)
        if act is None:
            raise NotFound("no such action")
        act(row, self.access.actor)
        if self.is_fragment:
            return HttpResponse(status=204)
        return HttpResponseRedirect(address_of(row.pk))


class Rewind(SessionDoor):
    def post(self, request: HttpRequest, session: str) -> HttpResponse:
        """Goes on behind the entry `to_seq`; what was behind it stays in the log."""
        row = self.found(session)
        rewinding.rewind(session=row.pk, to_seq=_seq(request, "to_seq"), actor=self.access.actor)
        if self.is_fragment:
            return toast(
                HttpResponse(status=204), f"The session goes on behind entry {_seq(request, 'to_seq')}."
            )
        return HttpResponseRedirect(address_of(row.pk))


class ForkHere(SessionDoor):
    def post(self, request: HttpRequest, session: str) -> HttpResponse:
        """A new session that goes on from the entry `at_seq`, and its page."""
        row = self.found(session)
        name = f"{row.name or 'Without a name'} (fork)"[:200]
        made = session_service.start_session(
            project=row.project_id,
            actor=self.access.actor,
            name=name,
            labels=row.labels,
            fork=Fork(session=row.pk, at_seq=_seq(request, "at_seq")),
        )
        address = address_of(made.pk)
        if self.is_fragment:
            return HttpResponse(status=204, headers={"HX-Redirect": address})
        return HttpResponseRedirect(address)


def _seq(request: HttpRequest, name: str) -> int:
    text = request.POST.get(name, "")
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise Invalid(f"{name} must be the number of an entry")
    return int(text)


class ChangeInput(ConsolePage):
    """Takes back, moves, promotes or demotes an input that waits."""

    def post(self, request: HttpRequest, input: str, change: str) -> HttpResponse:  # noqa: A002 - as in the path
        row = self._found(input)
        actor = self.access.actor
        match change:
            case "cancel":
                inputs.cancel_input(input=row.pk, actor=actor)
            case "promote":
                cancel_open = request.POST.get("cancel_open") == "1"
                inputs.promote_input(input=row.pk, actor=actor, cancel_open=cancel_open)
            case "demote":
                inputs.demote_input(input=row.pk, actor=actor)
            case "up" | "down":
                self._move(row, change, actor)
            case _:
                raise NotFound("no such change")
        if self.is_fragment:
            return HttpResponse(status=204)
        return HttpResponseRedirect(address_of(row.session_id))

    def _found(self, text: str) -> Input:
        try:
            wanted = ids.decode("inp", text)
        except ids.InvalidId:
            raise NotFound("no such input") from None
        row = Input.objects.select_related("session__project").filter(pk=wanted).first()
        if row is None:
            raise NotFound("no such input")
        self.access = access.within(self.request.user, project=row.session.project)
        return row

    def _move(self, row: Input, change: str, actor: Actor) -> None:
        """Past its neighbour; at the end of the queue it stays where it is."""
        waiting = Input.objects.filter(session_id=row.session_id, state=InputState.RECEIVED)
        other: UUID | None
        if change == "up":
            other = waiting.filter(rank__lt=row.rank).order_by("-rank").values_list("pk", flat=True).first()
            place = inputs.Place("before", other)
        else:
            other = waiting.filter(rank__gt=row.rank).order_by("rank").values_list("pk", flat=True).first()
            place = inputs.Place("after", other)
        if other is not None:
            inputs.move_input(input=row.pk, to=place, actor=actor)
