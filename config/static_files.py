"""Static files by whitenoise, without a thread for every request.

Whitenoise's middleware is synchronous, and one synchronous middleware makes Django run everything below it from
a thread that is blocked until the answer is there: a long poll or a stream would cost a thread each. Here only
requests for static files take the synchronous way.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]  # comes without types
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if not self.is_async:
            answer: HttpResponseBase = super().__call__(request)
            return answer
        return self._later(request)

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        found = None
        if request.path_info.startswith(self.static_prefix):
            found = await sync_to_async(self._served)(request)
        if found is not None:
            return found
        answer: HttpResponseBase = await self.get_response(request)
        return answer

    def _served(self, request: HttpRequest) -> HttpResponseBase | None:
        path = request.path_info
        file = self.find_file(path) if self.autorefresh else self.files.get(path)
        if file is None:
            return None
        served: HttpResponseBase = self.serve(file, request)
        return served
