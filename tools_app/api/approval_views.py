"""`/approvals`: what agents may do only once a person has allowed it."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.base import ApiView
from sessions_app.api.openapi import operation, page_of, ref
from sessions_app.api.pagination import page
from sessions_app.errors import NotFound
from sessions_app.idempotency import Answer
from tools_app import approvals
from tools_app.api import people_shapes as shapes
from tools_app.api.people_requests import ApprovalsQuery, Assign, Decide, DecideAll
from tools_app.models import Approval


class ApprovalsView(ApiView):
    @operation(
        "list_approvals",
        "List approvals",
        tag="approvals",
        query=ApprovalsQuery,
        answers={200: page_of(shapes.ApprovalShape)},
    )
    def get(self, request: Request) -> Response:
        """Newest first, of the whole project. `state=open` lists what waits for people."""
        query = self.query(ApprovalsQuery)
        rows = Approval.objects.filter(project_id=self.project, **query.lookups())
        return Response(page(rows, query, shapes.approval, name="approvals"))


class ApprovalView(ApiView):
    path_ids = {"approval": "apr"}

    @operation(
        "get_approval",
        "Read an approval",
        tag="approvals",
        answers={200: shapes.ApprovalShape},
        errors=[404],
    )
    def get(self, request: Request, approval: UUID) -> Response:
        """One approval, whatever became of it."""
        row = Approval.objects.filter(pk=approval, project_id=self.project).first()
        if row is None:
            raise NotFound("no such approval")
        return Response(shapes.approval(row))

    @operation(
        "assign_approval",
        "Assign an approval",
        tag="approvals",
        body=Assign,
        answers={200: shapes.ApprovalShape},
        errors=[404, 409],
    )
    def patch(self, request: Request, approval: UUID) -> Response:
        """Says whose it is, for the inbox. Anybody may still decide it."""
        body = self.body(Assign)
        _visible(self.project, [approval])
        return Response(shapes.approval(approvals.assign(approval=approval, assignee=body.assignee)))


class DecisionView(ApiView):
    path_ids = {"approval": "apr"}

    @operation(
        "decide_approval",
        "Allow or deny",
        tag="approvals",
        body=Decide,
        answers={200: shapes.ApprovalShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, approval: UUID) -> Response:
        """The first decision counts. The same one again by the same person answers 200 with what is stored.

        Any other is 409 with the approval as it is: `approval_decided` says who decided and when,
        `approval_cancelled` and `approval_expired` that nobody can decide any more.
        """
        body = self.body(Decide)
        _visible(self.project, [approval])

        def effect() -> Answer:
            row = approvals.decide(
                approval=approval,
                decision=body.decision,
                reason=body.reason,
                remember=body.remember,
                actor=self.actor(body.actor),
            )
            return Answer(200, shapes.approval(row))

        return self.once(effect)


class DecisionsView(ApiView):
    @operation(
        "decide_approvals",
        "Allow or deny many at once",
        tag="approvals",
        body=DecideAll,
        answers={
            200: {
                "type": "object",
                "properties": {"data": {"type": "array", "items": ref(shapes.ApprovalShape)}},
                "required": ["data"],
            }
        },
        errors=[404],
        creates=True,
    )
    def post(self, request: Request) -> Response:
        """In one transaction, all or none: one that can't be decided so refuses them all, and `current` shows it."""
        body = self.body(DecideAll)
        decisions = [
            approvals.Decision(
                approval=one.approval, decision=one.decision, reason=one.reason, remember=one.remember
            )
            for one in body.decisions
        ]
        _visible(self.project, [one.approval for one in decisions])

        def effect() -> Answer:
            rows = approvals.decide_all(decisions, actor=self.actor(body.actor))
            return Answer(200, {"data": [shapes.approval(row) for row in rows]})

        return self.once(effect)


def _visible(project: UUID, wanted: list[UUID]) -> None:
    known = Approval.objects.filter(pk__in=wanted, project_id=project).count()
    if known != len(set(wanted)):
        raise NotFound("no such approval")
