"""The reference of entries says what the code says."""

from pathlib import Path

from django.conf import settings

from sessions_app.entry_kinds import KINDS
from sessions_app.entry_reference import render


def test_the_reference_is_that_of_the_code():
    """Drift: `manage.py entryreference` writes it anew"""
    assert (Path(settings.BASE_DIR) / "docs" / "reference" / "entries.md").read_text() == render()


def test_every_kind_stands_in_it_once():
    for kind in KINDS:
        assert render().count(f"### `{kind}`\n") == 1
