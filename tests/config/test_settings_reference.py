"""docs/reference/settings.md says what the table of settings says."""

import dataclasses

import pytest

from config import settings_reference, tenure_settings


def test_the_reference_is_what_the_table_says() -> None:
    """A setting without its line in the reference, or with a wrong one, is found here."""
    assert settings_reference.FILE.read_text() == settings_reference.render(), (
        f"run {settings_reference.COMMAND} and commit docs/reference/settings.md"
    )


@pytest.mark.parametrize("name", sorted(tenure_settings.FIELDS))
def test_each_setting_is_described(name: str) -> None:
    line = next(
        row
        for row in settings_reference.render().splitlines()
        if row.startswith(f"| `TENURE_{name.upper()}` |")
    )
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert len(cells) == 5
    assert cells[1]
    assert len(cells[4]) > 10


def test_what_the_reference_shows_can_be_set() -> None:
    """Defaults and bounds are shown in a form that the settings themselves read, with the same meaning."""
    for name, field in tenure_settings.FIELDS.items():
        parse = field.metadata["parse"]
        for value in (field.default, field.metadata["low"], field.metadata["high"]):
            if value is not None:
                assert parse(settings_reference._bare(value, parse)) == value, name


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.05, "50ms"), (1.5, "1.5s"), (1.0, "1s"), (60.0, "60s"), (90.0, "90s"), (600.0, "10m"), (0.0, "0s")],
)
def test_durations_are_shown_as_people_write_them(seconds: float, shown: str) -> None:
    assert settings_reference._duration(seconds) == shown


def test_a_new_setting_appears_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {"parse": tenure_settings._integer, "doc": "something new to set", "low": 1, "high": 9}
    made = dataclasses.make_dataclass(
        "Made", [("new_one", int, dataclasses.field(default=3, metadata=metadata))]
    )
    fields = {field.name: field for field in dataclasses.fields(made)}
    monkeypatch.setattr(tenure_settings, "FIELDS", tenure_settings.FIELDS | fields)
    wanted = "| `TENURE_NEW_ONE` | whole number | `3` | 1 to 9 | something new to set |"
    assert wanted in settings_reference.render().splitlines()
