"""`web_search` against servers that speak as Brave Search and Tavily document it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sessions_app import ids, secrets
from sessions_app.models import Project
from sessions_app.tool_port import ToolContext
from tests.tools_app.outside import servers
from tests.tools_app.outside.conftest import committed
from tests.tools_app.outside.servers import Server, as_json, reply, serving
from tools_app.outside.search_providers import PROVIDERS
from tools_app.outside.web_search import web_search
from tools_app.results import ToolFailed

KEY = "BSA-key-123"
PATHS = {"brave": "/res/v1/web/search", "tavily": "/search"}

# The parts of the documented answers that matter, with others around them.
BRAVE = {
    "type": "search",
    "query": {"original": "otters", "more_results_available": True},
    "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}]},
    "web": {
        "type": "search",
        "family_friendly": True,
        "results": [
            {
                "type": "search_result",
                "title": "Otters &amp; rivers",
                "url": "https://otters.example/a?b=1&c=2",
                "description": "They <strong>hold hands</strong> while\nthey sleep.",
                "language": "en",
                "profile": {"name": "Otters"},
                "extra_snippets": ["more"],
            },
            {"title": "No description", "url": "https://otters.example/b"},
            {"title": "No address"},
            "junk",
        ],
    },
}
TAVILY = {
    "query": "otters",
    "answer": None,
    "images": [],
    "results": [
        {
            "title": "Otters & rivers",
            "url": "https://otters.example/a?b=1&c=2",
            "content": "They hold hands while they sleep.",
            "score": 0.81,
            "raw_content": None,
        },
        {"title": "No description", "url": "https://otters.example/b", "content": None},
    ],
    "response_time": "1.67",
    "request_id": "123e4567",
}
ANSWERS = {"brave": BRAVE, "tavily": TAVILY}
FOUND = {
    "query": "otters asleep",
    "results": [
        {
            "title": "Otters & rivers",
            "url": "https://otters.example/a?b=1&c=2",
            "snippet": "They hold hands while they sleep.",
        },
        {"title": "No description", "url": "https://otters.example/b", "snippet": ""},
    ],
}


@pytest.fixture(params=sorted(PROVIDERS))
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def keyed(project: Project) -> ToolContext:
    """In a project with a key for both services."""
    for name in ("brave-search", "tavily"):
        committed(secrets.put_secret, project=project, name=name, value=KEY)
    return ToolContext(project.id, ids.new_id(), 1, "tcl_token", {})


async def failure(context: ToolContext, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as failed:
        await web_search({"query": "otters", **arguments}, context)
    assert failed.value.more is None
    return str(failed.value)


type Ask = Callable[..., Any]


@pytest.fixture
def refused(provider: str, keyed: ToolContext, tenure: Callable[..., None]) -> Ask:
    """What the model is told when the service gives this answer."""

    async def ask(answer: servers.Answer, **settings: Any) -> str:
        async with serving(**{PATHS[provider]: answer}) as server:
            tenure(web_search_provider=provider, web_search_url=server.url(""), **settings)
            return await failure(keyed)

    return ask


async def searched(
    provider: str, context: ToolContext, tenure: Callable[..., None], answer: Any, **arguments: Any
) -> tuple[dict[str, Any], Server]:
    async with serving(**{PATHS[provider]: as_json(answer)}) as server:
        tenure(web_search_provider=provider, web_search_url=server.url("/"))
        return await web_search(arguments, context), server


async def test_results_come_with_title_address_and_snippet(
    provider: str, keyed: ToolContext, tenure: Callable[..., None]
) -> None:
    """The same from either service, without markup."""
    found, _ = await searched(provider, keyed, tenure, ANSWERS[provider], query=" otters\n asleep ", count=5)
    assert found == FOUND


async def test_brave_is_asked_as_it_documents(keyed: ToolContext, tenure: Callable[..., None]) -> None:
    """GET with the key in X-Subscription-Token."""
    _, server = await searched("brave", keyed, tenure, BRAVE, query="a & b", count=5)
    (request,) = server.requests
    assert (request.method, request.path) == ("GET", "/res/v1/web/search")
    assert request.query["q"] == ["a & b"]
    assert request.query["count"] == ["5"]
    assert request.headers["x-subscription-token"] == KEY
    assert request.headers["accept"] == "application/json"


async def test_tavily_is_asked_as_it_documents(keyed: ToolContext, tenure: Callable[..., None]) -> None:
    """POST with the key as bearer."""
    _, server = await searched("tavily", keyed, tenure, TAVILY, query="a & b")
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/search")
    assert request.json() == {"query": "a & b", "max_results": 8, "search_depth": "basic"}
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("name", "answer"),
    [("brave", {"type": "search", "query": {}}), ("tavily", {"query": "x", "results": []})],
)
async def test_nothing_found_is_a_result(
    keyed: ToolContext, tenure: Callable[..., None], name: str, answer: dict[str, Any]
) -> None:
    """No failure: the model may search for something else."""
    found, _ = await searched(name, keyed, tenure, answer, query="x")
    assert found == {"query": "x", "results": []}


async def test_a_missing_key_says_what_an_operator_has_to_do(
    provider: str, project: Project, tenure: Callable[..., None]
) -> None:
    """Nothing is asked without one."""
    async with serving() as server:
        tenure(web_search_provider=provider, web_search_url=server.url(""))
        said = await failure(ToolContext(project.id, ids.new_id(), 1, "tcl_token", {}))
    name = PROVIDERS[provider].secret
    assert f"The secret '{name}' is not stored in this project." in said
    assert f"manage.py setsecret, or PUT /api/v1/secrets/{name}" in said
    assert server.connections == 0


async def test_the_secret_can_have_another_name(keyed: ToolContext, tenure: Callable[..., None]) -> None:
    """`TENURE_WEB_SEARCH_SECRET`."""
    tenure(web_search_secret="our-search-key")
    assert "'our-search-key' is not stored" in await failure(keyed)


async def test_a_refused_key_is_for_an_operator(refused: Ask, provider: str) -> None:
    """As each service says it; the key itself is not repeated."""
    answers = {
        "brave": as_json(
            {
                "type": "ErrorResponse",
                "error": {
                    "id": "x",
                    "status": 422,
                    "code": "SUBSCRIPTION_TOKEN_INVALID",
                    "detail": f"The provided subscription token {KEY} is invalid.",
                },
            },
            status="422 Unprocessable Entity",
        ),
        "tavily": as_json(
            {"detail": {"error": f"Unauthorized: missing or invalid API key {KEY}."}},
            status="401 Unauthorized",
        ),
    }
    said = await refused(answers[provider])
    assert "refused the project's key" in said
    assert "an operator has to replace it" in said
    assert "invalid" in said
    assert KEY not in said


async def test_a_rate_limit_says_when_to_come_back(refused: Ask, provider: str) -> None:
    """Retry-After, or Brave's own header with its windows."""
    header = {"x_ratelimit_reset": "7, 1419704"} if provider == "brave" else {"retry_after": "7"}
    said = await refused(as_json({"detail": "slow down"}, status="429 Too Many Requests", **header))
    assert "takes no more requests right now (again in 7 s). Wait before you search again" in said


async def test_a_plan_that_is_used_up_is_for_an_operator(refused: Ask, provider: str) -> None:
    """402 of Brave, 432 of Tavily."""
    status = "402 Payment Required" if provider == "brave" else "432 Limit"
    assert "is used up" in await refused(as_json({}, status=status))


@pytest.mark.parametrize("answer", [as_json({}, status="500 Oops"), reply("<html>", status="503 Busy")])
async def test_a_fault_of_the_service_says_to_try_later(refused: Ask, answer: bytes) -> None:
    """5xx, in whatever form."""
    assert "Try again later, or go on without" in await refused(answer)


async def test_a_refused_search_tells_why(refused: Ask, provider: str) -> None:
    """Without more than a line of what the service says."""
    detail = "Query is too long. " + "x" * 1000
    value = {"error": {"detail": detail}} if provider == "brave" else {"detail": {"error": detail}}
    said = await refused(as_json(value, status="400 Bad Request"))
    assert "refused the search with status 400 (Query is too long." in said
    assert len(said) < 450


@pytest.mark.parametrize(
    "answer",
    [
        as_json({"web": {"results": {}}, "results": {}}),
        as_json([]),
        as_json("otters"),
        reply("<html>Welcome to our network</html>", content_type="text/html"),
        reply(b"[" * 100_000, content_type="application/json"),
    ],
)
async def test_an_answer_in_another_form_is_a_failure(refused: Ask, answer: bytes) -> None:
    """A login page, or a service that has changed."""
    assert "in a form that is not understood" in await refused(answer)


@pytest.mark.parametrize(
    "answer", [servers.hang_up, servers.break_off, reply(status="302 Found", location="/x")]
)
async def test_a_service_that_does_not_answer_is_a_failure(refused: Ask, answer: servers.Answer) -> None:
    """W5: redirects are not followed, a key would go along."""
    said = await refused(answer)
    assert "could not be asked" in said or "redirect" in said


async def test_a_silent_service_does_not_hold_the_tool(refused: Ask) -> None:
    """T5."""
    said = await refused(servers.silent, web_search_timeout=0.2)
    assert "did not answer within 0.2 s" in said


async def test_a_blank_query_asks_nothing(keyed: ToolContext) -> None:
    """T3."""
    assert await failure(keyed, query=" \n ") == "The query is blank."


async def test_cancelling_ends_it_at_once(keyed: ToolContext, tenure: Callable[..., None]) -> None:
    """I6."""
    asked = asyncio.Event()

    async def waits(_request: servers.Request, _writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with serving(**{PATHS["brave"]: waits}) as server:
        tenure(web_search_url=server.url(""))
        task = asyncio.create_task(web_search({"query": "x"}, keyed))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(5):
                await task
