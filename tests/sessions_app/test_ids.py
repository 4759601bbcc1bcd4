"""TypeIDs: the text form of the specification, and nothing else is taken for one."""

import re
import uuid

import pytest

from sessions_app import ids

# From the specification's table of valid TypeIDs.
KNOWN = {
    "00000000000000000000000000": "00000000-0000-0000-0000-000000000000",
    "00000000000000000000000001": "00000000-0000-0000-0000-000000000001",
    "0000000000000000000000000g": "00000000-0000-0000-0000-000000000010",
    "7zzzzzzzzzzzzzzzzzzzzzzzzz": "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "0123456789abcdefghjkmnpqrs": "0110c853-1d09-52d8-d73e-1194e95b5f19",
    "01h455vb4pex5vsknk084sn02q": "01890a5d-ac96-774b-bcce-b302099a8057",
}


@pytest.mark.parametrize(("text", "value"), KNOWN.items())
def test_the_text_is_that_of_the_specification(text: str, value: str) -> None:
    assert ids.encode("ses", uuid.UUID(value)) == f"ses_{text}"
    assert ids.decode("ses", f"ses_{text}") == uuid.UUID(value)
    assert re.fullmatch(ids.pattern("ses"), f"ses_{text}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ses_",
        "01h455vb4pex5vsknk084sn02q",
        "turn_01h455vb4pex5vsknk084sn02q",
        "ses-01h455vb4pex5vsknk084sn02q",
        "SES_01h455vb4pex5vsknk084sn02q",
        "ses_01h455vb4pex5vsknk084sn02",
        "ses_01h455vb4pex5vsknk084sn02qq",
        "ses_01H455VB4PEX5VSKNK084SN02Q",
        "ses_01h455vb4pex5vsknk084sn0il",
        "ses_01h455vb4pex5vsknk084sn0\u0662q",
        "ses_8zzzzzzzzzzzzzzzzzzzzzzzzz",
    ],
)
def test_anything_else_is_no_id(text: str) -> None:
    """Also what would be more than 128 bits; the pattern that clients are told says the same."""
    with pytest.raises(ids.InvalidId):
        ids.decode("ses", text)
    assert not re.fullmatch(ids.pattern("ses"), text)


def test_new_ids_grow_and_are_of_version_7() -> None:
    made = [ids.new_id() for _ in range(5000)]
    assert made == sorted(set(made))
    assert {(one.version, one.variant) for one in made} == {(7, uuid.RFC_4122)}
