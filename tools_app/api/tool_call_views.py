"""`/tool-calls`: what agents called, and for custom ones the doors through which a backend answers."""

from collections.abc import Callable
from uuid import UUID

from django.db.models import Q
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import content as contents
from sessions_app.api.base import ApiView
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import page
from sessions_app.idempotency import Answer
from sessions_app.models.fields import ClockTimestamp
from tools_app import claims, custom_tools, tool_calls
from tools_app.api import tool_call_shapes as shapes
from tools_app.api.tool_call_requests import (
    ExtendClaim,
    ReleaseClaim,
    ReportProgress,
    SubmitResult,
    ToolCallsQuery,
)
from tools_app.models import ToolCall, ToolCallState


class ToolCallsView(ApiView):
    @operation(
        "list_tool_calls",
        "List tool calls",
        tag="tool calls",
        query=ToolCallsQuery,
        answers={200: page_of(shapes.ToolCallShape)},
    )
    def get(self, request: Request) -> Response:
        """Newest first; with a `state` other than completed the oldest first, as work is done.

        A backend finds its work with `state=waiting&class=custom`.
        """
        query = self.query(ToolCallsQuery)
        rows = tool_calls.rows().filter(project_id=self.project)
        if query.state is not None:
            rows = rows.filter(state=query.state.value)
        if query.class_ is not None:
            rows = rows.filter(tool_class=query.class_.value)
        if query.name is not None:
            rows = rows.filter(name=query.name)
        if query.session is not None:
            rows = rows.filter(session_id=query.session)
        if query.claimed is not None:
            held = Q(state=ToolCallState.WAITING, claim_expires_at__gt=ClockTimestamp())
            rows = rows.filter(held) if query.claimed else rows.exclude(held)
        is_open = query.state not in {None, ToolCallState.COMPLETED}
        name = "open-tool-calls" if is_open else "tool-calls"
        return Response(page(rows, query, shapes.tool_call, name=name, newest_first=not is_open))


class ToolCallDoor(ApiView):
    """A view below `/tool-calls/{tool_call}`."""

    path_ids = {"tool_call": "tcl"}

    def change(self, effect: Callable[[], ToolCall], *, status: int = 200) -> Response:
        """Run the effect, once per Idempotency-Key, and answer with the call as it is then."""
        return self.once(lambda: Answer(status, shapes.tool_call(effect())))


class ToolCallView(ToolCallDoor):
    @operation(
        "get_tool_call",
        "Read a tool call",
        tag="tool calls",
        answers={200: shapes.ToolCallShape},
        errors=[404],
    )
    def get(self, request: Request, tool_call: UUID) -> Response:
        """As it is now, with its result where it has one."""
        return Response(shapes.tool_call(tool_calls.read(project=self.project, tool_call=tool_call)))


class ResultView(ToolCallDoor):
    @operation(
        "submit_tool_result",
        "Post the result of a custom call",
        tag="tool calls",
        body=SubmitResult,
        answers={201: shapes.ToolCallShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, tool_call: UUID) -> Response:
        """The first result wins; a claim is not needed for it. Later ones get 409 `tool_call_completed`.

        `current` then shows the call with the result that is stored. While a person has to allow the call it is 409
        `tool_call_not_ready`, for calls of other classes `tool_call_not_custom`. Where the call was over before any
        answer came (its deadline, a cancel), the first late answer is kept in the session's log.
        """
        body = self.body(SubmitResult)
        actor = self.actor(body.actor)
        content = contents.parse(body.content, may_be_empty=True)

        def effect() -> ToolCall:
            return custom_tools.submit_result(
                project=self.project,
                tool_call=tool_call,
                outcome=body.outcome,
                content=content,
                actor=actor,
            )

        try:
            return self.change(effect, status=201)
        except custom_tools.ToolCallCompleted as error:
            # Only now, when the refused attempt is rolled back, can anything be kept of it.
            if custom_tools.came_too_late(error.tool_call):
                custom_tools.keep_late_answer(
                    project=self.project,
                    tool_call=tool_call,
                    outcome=body.outcome,
                    content=content,
                    actor=actor,
                )
            raise


class ExtendView(ToolCallDoor):
    @operation(
        "extend_claim",
        "Keep a claimed call for longer",
        tag="tool calls",
        body=ExtendClaim,
        answers={200: shapes.ToolCallShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, tool_call: UUID) -> Response:
        """A claim that has expired is lost, also where nobody else has taken the call yet: 409 `claim_lost`."""
        body = self.body(ExtendClaim)
        return self.change(
            lambda: claims.extend(
                project=self.project,
                tool_call=tool_call,
                token=body.token,
                lease_seconds=body.lease_seconds,
            )
        )


class ReleaseView(ToolCallDoor):
    @operation(
        "release_claim",
        "Give a claimed call back",
        tag="tool calls",
        body=ReleaseClaim,
        answers={200: shapes.ToolCallShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, tool_call: UUID) -> Response:
        """The next one who claims may have it at once."""
        token = self.body(ReleaseClaim).token
        return self.change(lambda: claims.release(project=self.project, tool_call=tool_call, token=token))


class ProgressView(ToolCallDoor):
    @operation(
        "report_progress",
        "Tell how far a claimed call is",
        tag="tool calls",
        body=ReportProgress,
        answers={200: shapes.ToolCallShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, tool_call: UUID) -> Response:
        """An entry `tool_call_updated` for people who watch; at most 1,000 a call, of 4,000 characters each."""
        body = self.body(ReportProgress)
        content = contents.parse(body.content)
        return self.change(
            lambda: custom_tools.report_progress(
                project=self.project,
                tool_call=tool_call,
                token=body.token,
                content=content,
                actor=self.access.actor,
            )
        )
