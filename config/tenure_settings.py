"""Every `TENURE_…` setting: its type, range, default and meaning, in one table.

`load(environ)` reads them all and raises one `InvalidSettings` that names *every* wrong value, so that a
deployment is corrected in one round. Code reads `django.conf.settings.TENURE.<name>` at call time.
Durations are seconds (floats); in the environment they may be written `30s`, `500ms`, `10m`, `24h`, `2d`.
"""

import dataclasses
import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PREFIX = "TENURE_"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class InvalidSettings(ValueError):
    """One or more settings are wrong; the message has a line for each."""


def _duration(text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*", text)
    if match is None:
        raise ValueError("expected a duration like 30s, 500ms, 10m or a number of seconds")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"0", "false", "no", "off", ""}:
        return False
    raise ValueError("expected true or false")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _networks(text: str) -> tuple[str, ...]:
    for word in _words(text):
        ipaddress.ip_network(word)
    return _words(text)


def _key_ring(text: str) -> tuple[str, ...]:
    from sessions_app.key_ring import check_key_ring  # costs time that only deployments with secrets spend

    check_key_ring(_words(text))
    return _words(text)


def _search_provider(text: str) -> str:
    if text not in {"brave", "tavily"}:
        raise ValueError("expected brave or tavily")
    return text


def _address(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise ValueError("expected an address that starts with http:// or https://")
    return text


def _level(text: str) -> str:
    if text.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}:
        raise ValueError("expected DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return text.upper()


def _setting(
    default: Any,
    parse: Callable[[str], Any],
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    metadata = {"parse": parse, "doc": doc, "low": low, "high": high}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TenureSettings:
    """All settings of this deployment. The environment variable of `worker_ttl` is `TENURE_WORKER_TTL`."""

    secret_key: str = _setting("", str, "Django's secret key; required unless TENURE_DEBUG is on")
    debug: bool = _setting(False, _boolean, "development mode: Django's debug pages, development tools")
    allowed_hosts: tuple[str, ...] = _setting(
        ("localhost", "127.0.0.1", "[::1]"), _words, "host names that the web process answers to"
    )
    trusted_origins: tuple[str, ...] = _setting((), _words, "origins (scheme://host) trusted for CSRF")
    secure_cookies: bool = _setting(
        True, _boolean, "cookies of the admin go over HTTPS only; off for a host that people reach without it"
    )
    direct_database_url: str = _setting(
        "", str, "PostgreSQL without a pooler in between, for heartbeat and LISTEN; empty: the main one"
    )
    secret_keys: tuple[str, ...] = _setting(
        (), _key_ring, "key ring for stored secrets: Fernet keys, the first one encrypts, all decrypt"
    )
    allowed_networks: tuple[str, ...] = _setting(
        (), _networks, "private networks (CIDRs) that outgoing connections may reach"
    )
    log_level: str = _setting("INFO", _level, "least severe log event that is written")
    log_json: bool = _setting(False, _boolean, "write log events as JSON lines")
    artifact_root: str = _setting("", str, "folder of stored artifacts; empty: .tenure/artifacts")
    max_artifact_bytes: int = _setting(50 * 2**20, _integer, "largest artifact, bytes", low=1024, high=2**31)
    max_body_bytes: int = _setting(4 * 2**20, _integer, "largest JSON body, bytes", low=1024, high=2**28)

    worker_ttl: float = _setting(
        30.0, _duration, "a worker that did not renew for this long is lost", low=1.5, high=600
    )
    heartbeat_interval: float = _setting(
        5.0, _duration, "how often a worker renews itself", low=0.1, high=120
    )
    worker_drain_timeout: float = _setting(
        20.0, _duration, "how long a planned stop may take", low=0.5, high=3600
    )
    worker_drain_margin: float = _setting(
        3.0, _duration, "part of the drain timeout kept for aborting and releasing", low=0.1, high=60
    )
    worker_capacity: int = _setting(
        64, _integer, "sessions that one worker loop runs at once", low=1, high=1000
    )
    worker_threads: int = _setting(4, _integer, "database threads of a worker loop", low=1, high=6)
    worker_poll_interval: float = _setting(1.0, _duration, "fallback poll of a worker", low=0.05, high=60)
    project_max_running: int = _setting(
        0,
        _integer,
        "sessions of one project that run at once, where the project says nothing else; 0: any number",
        low=0,
        high=1_000_000,
    )
    claim_budget: float = _setting(
        60.0, _duration, "a session that ran this long lets others go first", low=0.1, high=3600
    )
    sweep_interval: float = _setting(
        1.0, _duration, "time between two looks of the sweeper", low=0.05, high=60
    )
    lock_free_looks_apart: float = _setting(
        1.0, _duration, "least time between the two looks that prove a worker's lock free", low=0.05, high=60
    )
    server_start_grace: float = _setting(
        10.0, _duration, "after a start of PostgreSQL free locks prove nothing for this long", low=0, high=600
    )
    lock_regain_timeout: float = _setting(
        0.5,
        _duration,
        "a worker whose lock connection broke takes it again within this or aborts",
        low=0.1,
        high=10,
    )
    crash_limit: int = _setting(
        5, _integer, "crashes of one turn after which it ends as failed", low=1, high=100
    )
    crash_suspect_from: int = _setting(
        2,
        _integer,
        "crashes in a row from which a session is a suspect: a worker runs one at a time",
        low=1,
        high=100,
    )
    tool_time_limit: float = _setting(600.0, _duration, "time limit of an outside tool", low=0.05, high=86400)
    remember_for: float = _setting(
        0.0,
        _duration,
        "how long a decision that is remembered holds; 0: until it is revoked",
        low=0,
        high=10 * 366 * 86400,
    )
    tool_output_limit: int = _setting(
        100_000,
        _integer,
        "characters of a tool result kept in the log; the rest goes to an artifact",
        low=1000,
        high=10_000_000,
    )
    subagent_max_depth: int = _setting(
        2, _integer, "levels of subagents below a session, where its config says nothing else", low=0, high=16
    )
    subagent_max_children: int = _setting(
        8,
        _integer,
        "subagents of one session that may work at once, where its config says nothing else",
        low=0,
        high=1000,
    )
    mcp_connect_timeout: float = _setting(
        10.0,
        _duration,
        "an MCP server that did not answer within this is taken to be down",
        low=0.05,
        high=120,
    )
    mcp_list_ttl: float = _setting(
        300.0,
        _duration,
        "how long the list of an MCP server's tools is used before it is fetched anew",
        low=0,
        high=86400,
    )
    mcp_retry_interval: float = _setting(
        30.0,
        _duration,
        "time between two attempts to fetch the list of an MCP server that is down",
        low=0,
        high=3600,
    )
    web_fetch_timeout: float = _setting(
        30.0,
        _duration,
        "how long web_fetch may wait for a page, where the config sets no time_limit for it",
        low=0.05,
        high=3600,
    )
    web_fetch_max_bytes: int = _setting(
        5 * 2**20, _integer, "bytes that web_fetch reads of a page or image, unpacked", low=1024, high=2**28
    )
    web_search_provider: str = _setting(
        "brave", _search_provider, "the service that web_search asks: brave (Brave Search) or tavily"
    )
    web_search_secret: str = _setting(
        "", str, "name of the project's secret with its key; empty: brave-search or tavily, by the service"
    )
    web_search_url: str = _setting(
        "", _address, "address of the service, where a gateway stands in front of it; empty: its own"
    )
    web_search_timeout: float = _setting(
        30.0, _duration, "how long web_search may wait for its answer", low=0.05, high=3600
    )
    http_tool_max_bytes: int = _setting(
        5 * 2**20, _integer, "bytes that an HTTP tool reads of an answer, unpacked", low=1024, high=2**28
    )
    retry_base: float = _setting(1.0, _duration, "first backoff of a failed model call", low=0.001, high=60)
    retry_max: float = _setting(
        60.0, _duration, "longest backoff of a failed model call", low=0.001, high=3600
    )
    retry_limit: int = _setting(8, _integer, "retries of a failed model call", low=0, high=100)
    context_window: int = _setting(
        128_000,
        _integer,
        "tokens that a model reads whose own context window is not known",
        low=500,
        high=100_000_000,
    )
    stream_stall_timeout: float = _setting(
        60.0, _duration, "a model stream without an event for this long has failed", low=0.05, high=3600
    )
    web_connections: int = _setting(
        16, _integer, "database connections that a web process holds at most", low=1, high=200
    )
    wait_max: float = _setting(
        60.0, _duration, "longest timeout that a long poll may ask for", low=1, high=600
    )
    feed_poll_interval: float = _setting(5.0, _duration, "fallback poll of live feeds", low=0.05, high=60)
    feed_ping_interval: float = _setting(
        15.0, _duration, "time between two signs of life on a live feed", low=0.1, high=60
    )
    feed_slow_after: float = _setting(
        10.0,
        _duration,
        "a reader of a live feed that takes nothing for this long is closed",
        low=0.1,
        high=600,
    )
    feed_recheck_interval: float = _setting(
        20.0, _duration, "how often the access of open feeds is checked again", low=0.1, high=60
    )
    ticket_lifetime: float = _setting(
        60.0, _duration, "how long a ticket for a socket can be used", low=1, high=600
    )
    idempotency_retention: float = _setting(
        48 * 3600.0, _duration, "how long first answers are kept for replay", low=86400, high=90 * 86400
    )
    preload_providers: tuple[str, ...] = _setting(
        (), _words, "model providers whose SDKs runworker loads before it forks"
    )
    dev_tools: bool = _setting(
        False, _boolean, "offer dev_append and dev_lookup; on by itself with TENURE_DEBUG"
    )
    dev_tool_root: str = _setting(
        "", str, "folder that the development tools write below; empty: .tenure/dev"
    )
    tool_modules: tuple[str, ...] = _setting((), _words, "Python modules that register tools")
    crash_at: str = _setting("", str, "name of a crash point: the process kills itself there (tests)")
    demo_model: str = _setting(
        "",
        str,
        "model of make demo and make run: provider:model, or a server's address#model; empty: scripted",
    )


FIELDS = {field.name: field for field in dataclasses.fields(TenureSettings)}
# Read by other parts of the project, not by this table.
_KNOWN_ELSEWHERE = {"TENURE_TEST_CHROMIUM", "TENURE_TEST_DATABASE"}


def load(environ: Mapping[str, str], *, root: Path) -> TenureSettings:
    """The settings of `environ`; raises `InvalidSettings` naming every wrong value."""
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, field in FIELDS.items():
        text = environ.get(PREFIX + name.upper())
        if text is None:
            continue
        problem = None
        try:
            value = field.metadata["parse"](text)
        except ValueError as error:
            problem = str(error)
        else:
            problem = _range_problem(value, field.metadata["low"], field.metadata["high"])
            values[name] = value
        if problem:
            shown = "***" if "secret" in name else repr(text)
            wrong.append(f"{PREFIX}{name.upper()}={shown}: {problem} ({field.metadata['doc']})")
    for variable in environ:
        if variable.startswith(PREFIX) and variable not in _KNOWN_ELSEWHERE:
            name = variable.removeprefix(PREFIX).lower()
            if name not in FIELDS:
                close = difflib.get_close_matches(name, FIELDS, n=1)
                hint = f"; did you mean {PREFIX}{close[0].upper()}?" if close else ""
                wrong.append(f"{variable}: no such setting{hint}")
    if not wrong:
        values.setdefault("artifact_root", str(root / ".tenure" / "artifacts"))
        values.setdefault("dev_tool_root", str(root / ".tenure" / "dev"))
        loaded = TenureSettings(**values)
        wrong = _contradictions(loaded)
        if not wrong:
            return loaded
    raise InvalidSettings("Wrong settings in the environment:\n  " + "\n  ".join(wrong))


def _range_problem(value: Any, low: float | None, high: float | None) -> str | None:
    if low is not None and value < low:
        return f"must be at least {low:g}"
    if high is not None and value > high:
        return f"must be at most {high:g}"
    return None


def _contradictions(loaded: TenureSettings) -> list[str]:
    """What no single range can say. Each line names both settings."""
    wrong = []
    if not loaded.secret_key and not loaded.debug:
        wrong.append(
            "TENURE_SECRET_KEY is missing: set a long random string (or TENURE_DEBUG=1 for development)"
        )
    if loaded.heartbeat_interval * 3 > loaded.worker_ttl:
        wrong.append("TENURE_HEARTBEAT_INTERVAL must be at most a third of TENURE_WORKER_TTL")
    if loaded.worker_drain_margin >= loaded.worker_drain_timeout:
        wrong.append("TENURE_WORKER_DRAIN_MARGIN must be shorter than TENURE_WORKER_DRAIN_TIMEOUT")
    if loaded.retry_base > loaded.retry_max:
        wrong.append("TENURE_RETRY_BASE must not be longer than TENURE_RETRY_MAX")
    return wrong
