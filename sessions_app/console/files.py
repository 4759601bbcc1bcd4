"""Files that sessions speak of, for the pages that show and offer them.

Always sent as the API sends them: as an attachment of the stored type, sandboxed, never sniffed. An `<img>` shows
such an answer, and nothing else can come of it.
"""

from django.http import HttpRequest, HttpResponseBase

from sessions_app import ids
from sessions_app.api.artifact_views import content
from sessions_app.console.pages import ConsolePage
from sessions_app.errors import NotFound
from sessions_app.models import Artifact


class FilePage(ConsolePage):
    def get(self, request: HttpRequest, artifact: str) -> HttpResponseBase:
        """The bytes; staff see the files of every project."""
        try:
            wanted = ids.decode("art", artifact)
        except ids.InvalidId:
            raise NotFound("no such file") from None
        row = Artifact.objects.filter(pk=wanted).first()
        if row is None:
            raise NotFound("no such file")
        return content(request, row)
