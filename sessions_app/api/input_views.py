"""`/sessions/{id}/inputs` and `/inputs/{id}`: the queue in front of a session."""

from collections.abc import Callable
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import inputs
from sessions_app.api import session_shapes as shapes
from sessions_app.api.base import ApiView
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import page
from sessions_app.api.session_requests import InputsQuery, MoveInput, NoBody, PromoteInput, SubmitInput
from sessions_app.api.session_views import SessionDoor, new_input
from sessions_app.errors import NotFound
from sessions_app.idempotency import Answer
from sessions_app.models import Input


class InputsView(SessionDoor):
    @operation(
        "submit_input",
        "Say something to a session",
        tag="inputs",
        body=SubmitInput,
        answers={202: shapes.InputShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, session: UUID) -> Response:
        """Stored when this answers, delivered as soon as the session can take it; none is lost or taken twice."""
        new = new_input(self, self.body(SubmitInput))
        self.visible(session)

        def effect() -> Answer:
            row = inputs.submit_input(
                session=session,
                content=new.content,
                delivery=new.delivery,
                actor=new.actor,
                cancel_open=new.cancel_open,
            )
            return Answer(202, shapes.input_(shapes.input_rows().get(pk=row.pk)))

        return self.once(effect)

    @operation(
        "list_inputs",
        "List a session's inputs",
        tag="inputs",
        query=InputsQuery,
        answers={200: page_of(shapes.InputShape)},
        errors=[404],
    )
    def get(self, request: Request, session: UUID) -> Response:
        """Oldest first. `position` is the place in the queue of those that wait; `state=received` lists only them."""
        query = self.query(InputsQuery)
        rows = shapes.input_rows().filter(session_id=self.visible(session))
        if query.state is not None:
            rows = rows.filter(state=query.state)
        return Response(page(rows, query, shapes.input_, name="inputs", newest_first=False))


class InputDoor(ApiView):
    """A view below `/inputs/{input}` that changes an input while it waits."""

    path_ids = {"input": "inp"}

    def change(self, input_id: UUID, effect: Callable[[], object]) -> Response:
        """Run the effect on an input of the caller's project and answer with the input as it is then."""
        if not Input.objects.filter(pk=input_id, session__project_id=self.project).exists():
            raise NotFound("no such input")

        def answer() -> Answer:
            effect()
            return Answer(200, shapes.input_(shapes.input_rows().get(pk=input_id)))

        return self.once(answer)


class CancelInputView(InputDoor):
    @operation(
        "cancel_input",
        "Take back an input",
        tag="inputs",
        body=NoBody,
        answers={200: shapes.InputShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, input: UUID) -> Response:  # noqa: A002 - the name in the path
        """While it waits. Once delivered: 409 `input_taken` with the input as it is. Safe to repeat."""
        self.body(NoBody)
        return self.change(input, lambda: inputs.cancel_input(input=input, actor=self.access.actor))


class MoveInputView(InputDoor):
    @operation(
        "move_input",
        "Move an input in the queue",
        tag="inputs",
        body=MoveInput,
        answers={200: shapes.InputShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, input: UUID) -> Response:  # noqa: A002 - the name in the path
        """To an end, or in front of or behind another waiting input. 409 `conflict` where that one does not wait."""
        to = self.body(MoveInput).place()
        return self.change(input, lambda: inputs.move_input(input=input, to=to, actor=self.access.actor))


class PromoteInputView(InputDoor):
    @operation(
        "promote_input",
        "Make an input steering",
        tag="inputs",
        body=PromoteInput,
        answers={200: shapes.InputShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, input: UUID) -> Response:  # noqa: A002 - the name in the path
        """It joins the current turn at its next model call; a model call that is backing off is asked again now."""
        cancel_open = self.body(PromoteInput).cancel_open
        return self.change(
            input,
            lambda: inputs.promote_input(input=input, actor=self.access.actor, cancel_open=cancel_open),
        )


class DemoteInputView(InputDoor):
    @operation(
        "demote_input",
        "Make an input queued",
        tag="inputs",
        body=NoBody,
        answers={200: shapes.InputShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, input: UUID) -> Response:  # noqa: A002 - the name in the path
        """It keeps its place and waits for a turn of its own."""
        self.body(NoBody)
        return self.change(input, lambda: inputs.demote_input(input=input, actor=self.access.actor))
