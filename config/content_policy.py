"""What a page may load and do, as the Content-Security-Policy that goes with every answer.

The console and everything else get `settings.SECURE_CSP`, under which no inline script, no `eval` and no foreign
address works: whatever a model manages to write into a page stays text. The admin's theme needs inline scripts
and `eval`, so below /admin/ another policy holds; nothing there renders what models say.
"""

from collections.abc import Mapping, Sequence

from django.http import HttpRequest, HttpResponse
from django.middleware.csp import ContentSecurityPolicyMiddleware
from django.utils.csp import CSP

type Policy = Mapping[str, Sequence[str]]

STRICT: Policy = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF],
    "style-src": [CSP.SELF],
    "img-src": [CSP.SELF],
    "font-src": [CSP.SELF],
    "connect-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
}
ADMIN: Policy = {
    **STRICT,
    "script-src": [CSP.SELF, CSP.UNSAFE_INLINE, CSP.UNSAFE_EVAL],
    "style-src": [CSP.SELF, CSP.UNSAFE_INLINE],
    "img-src": [CSP.SELF, "data:"],
}


class ContentPolicyMiddleware(ContentSecurityPolicyMiddleware):
    """Django's own, with a policy for the admin."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if request.path_info.startswith("/admin/") and not hasattr(response, "_csp_config"):
            response._csp_config = ADMIN  # type: ignore[attr-defined]  # noqa: SLF001 - as Django's decorator
        return super().process_response(request, response)
