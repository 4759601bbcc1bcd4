"""How the admin is laid out: its sidebar, by what people come for, with what waits for them."""

from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy

# The icons are names of Material Symbols, which unfold brings along.
_GROUPS: list[tuple[str, list[tuple[str, str, str]]]] = [
    (
        "Waiting for people",
        [
            ("Approvals", "task_alt", "tools_app_approval"),
            ("Questions", "help", "tools_app_question"),
            ("Remembered decisions", "bookmark", "tools_app_remembereddecision"),
        ],
    ),
    (
        "Sessions",
        [
            ("Sessions", "forum", "sessions_app_session"),
            ("Turns", "sync_alt", "sessions_app_turn"),
            ("Entries", "list", "sessions_app_entry"),
            ("Inputs", "input", "sessions_app_input"),
            ("Model calls", "neurology", "sessions_app_modelcall"),
            ("Tool calls", "build", "tools_app_toolcall"),
            ("Subagents", "account_tree", "sessions_app_child"),
            ("Waits for subagents", "hourglass", "tools_app_childwait"),
            ("Budgets of trees", "savings", "sessions_app_treebudget"),
        ],
    ),
    (
        "Agents",
        [
            ("Configs", "description", "sessions_app_agentconfig"),
            ("Profiles", "badge", "sessions_app_agentprofile"),
            ("Versions of profiles", "history", "sessions_app_profileversion"),
            ("Skills", "school", "tools_app_skill"),
            ("Versions of skills", "history_edu", "tools_app_skillversion"),
            ("Files", "attach_file", "sessions_app_artifact"),
            ("Machines", "dns", "machines_app_machine"),
            ("Machines of sessions", "link", "machines_app_machinebinding"),
        ],
    ),
    (
        "Running it",
        [
            ("Workers", "memory", "sessions_app_worker"),
            ("Leases", "lock_clock", "sessions_app_lease"),
            ("Projects", "folder", "sessions_app_project"),
            ("API keys", "key", "sessions_app_apikey"),
            ("Secrets", "password", "sessions_app_secret"),
            ("Tickets", "confirmation_number", "sessions_app_ticket"),
            ("Repeated requests", "repeat", "sessions_app_idempotencyrecord"),
            ("Staff", "person", "auth_user"),
        ],
    ),
]
_COUNTED = {
    "tools_app_approval": "config.admin_site.open_approvals",
    "tools_app_question": "config.admin_site.open_questions",
}


def unfold() -> dict[str, Any]:
    """The setting UNFOLD."""
    return {
        "SITE_TITLE": "Tenure",
        "SITE_HEADER": "Tenure",
        "SITE_URL": "/",
        # Without one, browsers ask for /favicon.ico, which is not there.
        "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _mark}],
        "SIDEBAR": {
            "show_search": True,
            "show_all_applications": False,
            "navigation": [
                {"title": title, "separator": True, "items": [_item(*item) for item in items]}
                for title, items in _GROUPS
            ],
        },
    }


def _mark(request: HttpRequest) -> str:
    del request
    return static("console/mark.svg")


def _item(title: str, icon: str, model: str) -> dict[str, Any]:
    item = {"title": title, "icon": icon, "link": reverse_lazy(f"admin:{model}_changelist")}
    return item | ({"badge": _COUNTED[model]} if model in _COUNTED else {})


def open_approvals(request: HttpRequest) -> int | None:
    """How many wait, for the sidebar; none shows nothing."""
    from tools_app.models import Approval

    del request
    return Approval.objects.filter(state="open").count() or None


def open_questions(request: HttpRequest) -> int | None:
    """How many wait, for the sidebar; none shows nothing."""
    from tools_app.models import Question

    del request
    return Question.objects.filter(state="open").count() or None
