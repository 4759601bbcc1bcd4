"""`GET /me`: who is asking."""

from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api import shapes
from sessions_app.api.base import ApiView
from sessions_app.api.openapi import operation


class MeView(ApiView):
    @operation("me", "Who is asking", tag="access", answers={200: shapes.Me})
    def get(self, request: Request) -> Response:
        """The project, the key and the role that the request acts with."""
        key = self.access.key
        answer: shapes.Me = {
            "project": shapes.project_ref(self.access.project),
            "key": None if key is None else shapes.key_ref(key),
            "role": self.access.role,
        }
        return Response(answer)
