"""`/secrets`: named values that are stored encrypted and never returned."""

from typing import Annotated

from pydantic import Field, StrictStr
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import secrets
from sessions_app.api import shapes
from sessions_app.api.base import ApiView
from sessions_app.api.fields import Body
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import PageQuery, page
from sessions_app.models import Secret


class PutSecret(Body):
    value: Annotated[StrictStr, Field(min_length=1, max_length=65536)]


class SecretsView(ApiView):
    @operation(
        "list_secrets",
        "List secrets",
        tag="secrets",
        query=PageQuery,
        answers={200: page_of(shapes.SecretShape)},
    )
    def get(self, request: Request) -> Response:
        """Names and times, newest first."""
        rows = Secret.objects.filter(project_id=self.project).defer("ciphertext")
        return Response(page(rows, self.query(PageQuery), shapes.secret, name="secrets"))


class SecretView(ApiView):
    @operation(
        "put_secret",
        "Store a secret",
        tag="secrets",
        body=PutSecret,
        answers={201: shapes.SecretShape, 200: shapes.SecretShape},
    )
    def put(self, request: Request, name: str) -> Response:
        """201 for a new name, 200 where a value was replaced."""
        body = self.body(PutSecret)
        row, is_new = secrets.put_secret(project=self.access.project, name=name, value=body.value)
        return Response(shapes.secret(row), 201 if is_new else 200)

    @operation(
        "get_secret", "Read about a secret", tag="secrets", answers={200: shapes.SecretShape}, errors=[404]
    )
    def get(self, request: Request, name: str) -> Response:
        """Its name and times; never its value."""
        return Response(shapes.secret(secrets.get_secret(project=self.access.project, name=name)))

    @operation("delete_secret", "Delete a secret", tag="secrets", answers={204: None}, errors=[404])
    def delete(self, request: Request, name: str) -> Response:
        """Calls that need it fail from now on."""
        secrets.delete_secret(project=self.access.project, name=name)
        return Response(status=204)
