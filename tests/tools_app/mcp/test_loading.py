"""What the SDK costs, and who pays for it."""

import subprocess
import sys


def loaded_after(code: str) -> list[str]:
    """Which of the SDK's packages a fresh interpreter has loaded after running `code`."""
    script = (
        f"import django; django.setup()\n{code}\nimport sys\n"
        "print([name for name in ('mcp', 'mcp_types', 'starlette', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return eval(done.stdout)  # noqa: S307  (our own list, printed above)


def test_neither_django_nor_a_worker_loads_the_sdk_at_its_start() -> None:
    """Half a second and tens of megabytes, which only those pay whose agents have MCP servers."""
    assert (
        loaded_after("import config.urls, sessions_app.engine.worker, tools_app.runtime, tools_app.mcp") == []
    )
