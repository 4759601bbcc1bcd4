"""`/api-keys`, for project admins."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import keys
from sessions_app.api import shapes
from sessions_app.api.authentication import IsProjectAdmin
from sessions_app.api.base import ApiView
from sessions_app.api.fields import Body, Moment, Name
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import PageQuery, page
from sessions_app.idempotency import Answer
from sessions_app.models import ApiKey


class CreateKey(Body):
    """A new API key; without `expires_at` it works until it is revoked."""

    name: Name
    role: Annotated[Literal["member", "admin"], Field(description="admins also manage keys")] = "member"
    expires_at: Moment | None = None


class KeysView(ApiView):
    permission_classes = [IsProjectAdmin]

    @operation(
        "create_key",
        "Create an API key",
        tag="access",
        body=CreateKey,
        answers={201: shapes.NewKey},
        errors=[403],
        creates=True,
    )
    def post(self, request: Request) -> Response:
        """The only answer that holds the key itself, as `secret`."""
        body = self.body(CreateKey)

        def effect() -> Answer:
            row, text = keys.create_key(
                project=self.project, name=body.name, role=body.role, expires_at=body.expires_at
            )
            answer: shapes.NewKey = {**shapes.key(row), "secret": text}
            return Answer(201, answer)

        return self.once(effect, sealed=True)

    @operation(
        "list_keys",
        "List API keys",
        tag="access",
        query=PageQuery,
        answers={200: page_of(shapes.Key)},
        errors=[403],
    )
    def get(self, request: Request) -> Response:
        """Newest first, revoked ones included."""
        rows = ApiKey.objects.filter(project_id=self.project)
        return Response(page(rows, self.query(PageQuery), shapes.key, name="keys"))


class KeyView(ApiView):
    permission_classes = [IsProjectAdmin]
    path_ids = {"key": "key"}

    @operation("get_key", "Read an API key", tag="access", answers={200: shapes.Key}, errors=[403, 404])
    def get(self, request: Request, key: UUID) -> Response:
        """Without its text, which is not stored."""
        return Response(shapes.key(keys.get_key(project=self.project, key=key)))

    @operation("revoke_key", "Revoke an API key", tag="access", answers={204: None}, errors=[403, 404])
    def delete(self, request: Request, key: UUID) -> Response:
        """It opens nothing from now on, and stays in the list. Safe to repeat."""
        keys.revoke_key(project=self.project, key=key)
        return Response(status=204)
