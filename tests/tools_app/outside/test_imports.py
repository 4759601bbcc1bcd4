"""What outside tools cost a process that runs none."""

import subprocess
import sys

SCRIPT = """
import sys, django
django.setup()
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"trafilatura", "lxml"}))
"""


def test_a_start_of_django_loads_no_extractor(process_environment: dict[str, str]) -> None:
    """The parser of pages lives in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=process_environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.split() == []
