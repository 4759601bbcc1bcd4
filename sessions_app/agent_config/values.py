"""The single values an agent config is made of: names, durations, money, URLs.

They stay the text that the author wrote (it is part of the config's identity); `seconds` and `Decimal` make
numbers of them where they are used.
"""

import re
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StrictFloat, StrictInt, StrictStr
from pydantic_core import PydanticCustomError

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)", re.ASCII)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_DURATION = 366 * 86400.0
_MONEY = re.compile(r"\d{1,9}(\.\d{1,6})?", re.ASCII)
_MAX_URL = 2000


def seconds(duration: str) -> float:
    """`"90s"`, `"10m"`, `"1h"`, `"2d"` (also `ms` and decimals) as seconds; `ValueError` for other text."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"not a duration: {duration!r}")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


def _check_duration(text: str) -> str:
    if not _DURATION.fullmatch(text):
        raise PydanticCustomError("malformed", "a duration is a number and a unit, such as 30s, 10m, 1h, 2d")
    if seconds(text) > _MAX_DURATION:
        raise PydanticCustomError("out_of_range", "a duration is at most 366 days")
    return text


def _check_positive_duration(text: str) -> str:
    if seconds(_check_duration(text)) == 0:
        raise PydanticCustomError("out_of_range", "this duration must be longer than nothing")
    return text


def _check_money(value: Any) -> Any:
    if not isinstance(value, str) or not _MONEY.fullmatch(value):
        raise PydanticCustomError("malformed", 'money is a decimal string in USD, such as "2.00"')
    if Decimal(value) == 0:
        raise PydanticCustomError("out_of_range", "money must be more than zero")
    return value


def check_url(text: str) -> str:
    """An absolute http(s) URL with a host, and nothing in it that belongs elsewhere."""
    problem = _url_problem(text)
    if problem:
        raise PydanticCustomError("malformed", "{problem}", {"problem": problem})
    return text


def _url_problem(text: str) -> str | None:
    if len(text) > _MAX_URL:
        return f"a URL has at most {_MAX_URL} characters"
    if any(ord(character) <= 0x20 or ord(character) == 0x7F for character in text) or "\\" in text:
        return "a URL holds no spaces, control characters or backslashes"
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        return f"not a URL: {error}"
    if url.scheme not in {"http", "https"}:
        return "the URL must start with http:// or https://"
    if not url.hostname or port == 0:
        return "the URL has no host"
    if "@" in url.netloc:
        return "the URL holds credentials; name a secret instead"
    if url.fragment:
        return "the URL holds a fragment"
    return None


Text = StrictStr
Words = Annotated[StrictStr, Field(min_length=1)]
Name = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
"""The name of a secret, machine or skill."""

PositiveDuration = Annotated[StrictStr, AfterValidator(_check_positive_duration)]
Money = Annotated[StrictStr, BeforeValidator(_check_money)]
Url = Annotated[StrictStr, AfterValidator(check_url)]
Count = Annotated[StrictInt, Field(ge=1, le=2**53 - 1)]
Share = Annotated[StrictFloat, Field(gt=0, lt=1, allow_inf_nan=False)]
