"""`/permissions`: what the rules say of a call, and what people have allowed for later calls."""

from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import UUID

from pydantic import Field, StrictStr, model_validator
from pydantic_core import PydanticCustomError
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import configs
from sessions_app.api.base import ApiView
from sessions_app.api.fields import Body, ConfigRef, Query, SessionRef, id_schema, reads_id
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import PageQuery, page
from sessions_app.errors import NotFound
from sessions_app.models import AgentConfig, Session
from tools_app import explanation, remembered
from tools_app.api import permission_shapes as shapes
from tools_app.models import RememberedDecision

_MAX_NAME = 200

RememberedRef = Annotated[UUID, reads_id("rem"), id_schema("rem")]
ToolName = Annotated[str, Field(min_length=1, max_length=_MAX_NAME)]


class Explain(Body):
    """A call as a model would make it, under a config or in a session with its config."""

    config: ConfigRef | None = None
    session: SessionRef | None = None
    tool: Annotated[StrictStr, Field(min_length=1, max_length=_MAX_NAME)]
    arguments: dict[str, Any]

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if (self.config is None) == (self.session is None):
            raise PydanticCustomError("required", "one of config and session, not both")
        return self


class RememberedQuery(PageQuery):
    """Those that hold, unless a state is named."""

    state: Literal["holds", "expired", "revoked"] = "holds"
    tool: ToolName | None = None
    session: SessionRef | None = None


class RevokeQuery(Query):
    """Which ones; several conditions must all hold."""

    repeated: ClassVar[frozenset[str]] = frozenset({"id"})

    id: Annotated[list[RememberedRef], Field(min_length=1, max_length=200)] | None = None
    tool: ToolName | None = None
    session: SessionRef | None = None

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("required", "say which ones: id, tool or session")
        return self


class ExplainView(ApiView):
    @operation(
        "explain_permission",
        "Explain what would become of a call",
        tag="permissions",
        body=Explain,
        answers={200: shapes.ExplanationShape},
        errors=[404],
    )
    def post(self, request: Request) -> Response:
        """Which rule decides and why. Nothing is called, asked or stored.

        A call that would fail before anybody is asked (an unknown tool, arguments that do not fit its schema) is
        explained as well, with the text that the model would get.
        """
        body = self.body(Explain)
        config = self._config(body)
        said = explanation.explain(
            config=config, tool=body.tool, arguments=body.arguments, session=body.session
        )
        return Response(shapes.explanation(config, body.tool, said))

    def _config(self, body: Explain) -> AgentConfig:
        if body.session is None:
            assert body.config is not None  # noqa: S101 - one of the two is there
            return configs.get_config(project=self.project, config=body.config)
        rows = Session.objects.filter(pk=body.session, project_id=self.project).select_related("config")
        session = rows.first()
        if session is None:
            raise NotFound
        return session.config


class RememberedDecisionsView(ApiView):
    @operation(
        "list_remembered",
        "List remembered decisions",
        tag="permissions",
        query=RememberedQuery,
        answers={200: page_of(shapes.RememberedShape)},
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        query = self.query(RememberedQuery)
        rows = remembered.in_state(self._rows(query.tool, query.session), query.state)
        return Response(page(rows, query, shapes.remembered, name="remembered"))

    @operation(
        "revoke_many_remembered",
        "Revoke several remembered decisions",
        tag="permissions",
        query=RevokeQuery,
        answers={204: None},
    )
    def delete(self, request: Request) -> Response:
        """Calls that they covered ask again from now on. Safe to repeat."""
        query = self.query(RevokeQuery)
        rows = self._rows(query.tool, query.session)
        if query.id is not None:
            rows = rows.filter(pk__in=query.id)
        wanted = list(rows.filter(revoked_at=None).values_list("pk", flat=True))
        remembered.revoke(remembered=wanted, actor=self.access.actor)
        return Response(status=204)

    def _rows(self, tool: str | None, session: UUID | None) -> Any:
        rows = RememberedDecision.objects.filter(project_id=self.project)
        if tool is not None:
            rows = rows.filter(tool=tool)
        return rows if session is None else rows.filter(session_id=session)


class RememberedDecisionView(ApiView):
    path_ids = {"decision": "rem"}

    @operation(
        "get_remembered",
        "Read a remembered decision",
        tag="permissions",
        answers={200: shapes.RememberedShape},
        errors=[404],
    )
    def get(self, request: Request, decision: UUID) -> Response:
        """One of them, whatever became of it."""
        return Response(shapes.remembered(self._row(decision)))

    @operation(
        "revoke_remembered",
        "Revoke a remembered decision",
        tag="permissions",
        answers={204: None},
        errors=[404],
    )
    def delete(self, request: Request, decision: UUID) -> Response:
        """Calls that it covered ask again from now on. It stays in the list of those revoked. Safe to repeat."""
        remembered.revoke(remembered=[self._row(decision).pk], actor=self.access.actor)
        return Response(status=204)

    def _row(self, decision: UUID) -> RememberedDecision:
        return remembered.get(project=self.project, remembered=decision)
