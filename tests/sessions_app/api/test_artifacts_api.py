"""Files over the API."""

import asyncio
import dataclasses
import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.test import AsyncClient

from sessions_app.api.artifact_views import ArtifactsView
from tests.sessions_app.api.conftest import Api, problem


@pytest.fixture(autouse=True)
def storage(settings: Any, tmp_path: Path) -> Path:
    settings.STORAGES = settings.STORAGES | {
        "default": settings.STORAGES["default"] | {"OPTIONS": {"location": str(tmp_path)}}
    }
    return tmp_path


def raw(api: Api, data: bytes = b"0123456789", name: str = "a.txt", media_type: str = "text/plain") -> Any:
    answer = api.post(f"/artifacts?name={name}", data, content_type=media_type)
    assert answer.status_code == 201, answer.content
    return answer.json()


def form(api: Api, **fields: Any) -> Any:
    return api.client.post("/api/v1/artifacts", fields, headers={"Authorization": f"Bearer {api.key}"})


def download(api: Api, path: str, **headers: str) -> Any:
    """The answer, read to its end: an unread one would keep its file open."""
    answer = api.get(path, **headers)
    answer.body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return answer


def test_a_raw_body_becomes_an_artifact(api: Api) -> None:
    made = raw(api)
    assert made["size"] == 10
    assert made["sha256"] == hashlib.sha256(b"0123456789").hexdigest()
    assert (made["name"], made["media_type"]) == ("a.txt", "text/plain")
    assert set(made) == {"id", "name", "media_type", "size", "sha256", "created_at"}
    assert api.get(f"/artifacts/{made['id']}").json() == made
    assert api.get("/artifacts").json()["data"] == [made]


def test_a_form_becomes_an_artifact(api: Api) -> None:
    file = SimpleUploadedFile("../../etc/pass wd.png", b"\x89PNG", content_type="image/png")
    made = form(api, file=file)
    assert made.status_code == 201, made.content
    assert (made.json()["name"], made.json()["media_type"], made.json()["size"]) == (
        "pass wd.png",
        "image/png",
        4,
    )
    named = form(api, file=SimpleUploadedFile("a", b"x"), name="b.bin")
    assert named.json()["name"] == "b.bin"


def test_a_form_without_a_file_or_with_more_is_400(api: Api) -> None:
    assert problem(form(api, name="x"), 400, "invalid")["errors"][0]["path"] == "/file"
    problem(form(api, file=SimpleUploadedFile("a", b"x"), mode="x"), 400, "invalid")
    problem(form(api, file=[SimpleUploadedFile("a", b"x"), SimpleUploadedFile("b", b"x")]), 400, "invalid")
    broken = api.post("/artifacts", b"nonsense", content_type="multipart/form-data")
    problem(broken, 400, "malformed")


def test_an_empty_file_is_a_file(api: Api) -> None:
    made = api.post("/artifacts?name=empty", b"", Content_Type="text/plain").json()
    assert made["size"] == 0
    assert download(api, f"/artifacts/{made['id']}/content").body == b""


def test_uploads_over_the_limit_are_413_and_leave_nothing(api: Api, settings: Any, storage: Path) -> None:
    settings.TENURE = dataclasses.replace(settings.TENURE, max_artifact_bytes=1024)
    problem(api.post("/artifacts", b"x" * 1025, content_type="text/plain"), 413, "artifact_too_large")
    problem(form(api, file=SimpleUploadedFile("a", b"x" * 1025)), 413, "artifact_too_large")
    keyed = api.post("/artifacts", b"x" * 1025, content_type="text/plain", Idempotency_Key="k")
    problem(keyed, 413, "artifact_too_large")
    assert api.get("/artifacts").json()["data"] == []
    assert not [path for path in storage.rglob("*") if path.is_file()]
    raw(api, b"x" * 1024)
    assert form(api, file=SimpleUploadedFile("a", b"x" * 1024)).status_code == 201


@pytest.mark.parametrize("media_type", ["nonsense", "text/html\n", "a/b; \u00e9"])
def test_media_types_that_are_none_are_refused(api: Api, media_type: str) -> None:
    assert api.post("/artifacts", b"x", content_type=media_type).status_code in {400, 415}


def test_an_upload_with_the_same_key_is_stored_once(api: Api) -> None:
    def upload(data: bytes, name: str = "a") -> Any:
        return api.post(f"/artifacts?name={name}", data, content_type="text/plain", Idempotency_Key="up-1")

    first, again = upload(b"one"), upload(b"one")
    assert again.json() == first.json()
    assert again["Idempotency-Replayed"] == "true"
    problem(upload(b"two"), 409, "idempotency_conflict")
    problem(upload(b"one", name="b"), 409, "idempotency_conflict")
    assert len(api.get("/artifacts").json()["data"]) == 1


def test_downloads_are_attachments_that_nothing_runs(api: Api) -> None:
    made = raw(api, b"<script>1</script>", name='a"b%0d%0aX: y.html', media_type="text/html")
    answer = download(api, f"/artifacts/{made['id']}/content")
    assert answer.body == b"<script>1</script>"
    assert answer["Content-Type"] == "text/html"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Disposition"].startswith("attachment")
    assert "X" not in answer
    assert "sandbox" in answer["Content-Security-Policy"]
    assert answer["Content-Length"] == "18"


def test_an_etag_saves_the_second_download(api: Api) -> None:
    path = f"/artifacts/{raw(api)['id']}/content"
    etag = download(api, path)["ETag"]
    assert download(api, path, If_None_Match=etag).status_code == 304
    assert download(api, path, If_None_Match=f'"x", W/{etag}').status_code == 304
    assert download(api, path, If_None_Match='"x"').status_code == 200


@pytest.mark.parametrize(
    ("asked", "status", "found", "place"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=7-99", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=4-2", 200, b"0123456789", None),
        ("bytes=1-2,4-5", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("bytes=x-y", 200, b"0123456789", None),
    ],
)
def test_ranges(api: Api, asked: str, status: int, found: bytes, place: str | None) -> None:
    path = f"/artifacts/{raw(api)['id']}/content"
    answer = download(api, path, Range=asked)
    assert (answer.status_code, answer.body, answer.headers.get("Content-Range")) == (status, found, place)
    assert answer["Content-Length"] == str(len(found))


def test_a_range_behind_the_end_is_416_and_one_of_another_version_is_ignored(api: Api) -> None:
    path = f"/artifacts/{raw(api)['id']}/content"
    problem(download(api, path, Range="bytes=10-"), 416, "range_not_satisfiable")
    problem(download(api, path, Range="bytes=-0"), 416, "range_not_satisfiable")
    assert download(api, path, Range="bytes=1-2", If_Range='"old"').status_code == 200
    assert download(api, path, Range="bytes=1-2", If_Range=download(api, path)["ETag"]).status_code == 206


def test_head_tells_without_bytes(api: Api) -> None:
    answer = api.send("HEAD", f"/artifacts/{raw(api)['id']}/content")
    assert (answer.status_code, answer["Content-Length"], b"".join(answer)) == (200, "10", b"")


def test_under_asgi_files_are_streamed_both_ways(new_api: Any, transactional_db: None) -> None:
    key = new_api("ours").key

    async def exchange() -> bytes:
        client = AsyncClient()
        headers = {"Authorization": f"Bearer {key}"}
        try:
            made = await client.post(
                "/api/v1/artifacts?name=a", b"0123456789", content_type="text/plain", headers=headers
            )
            assert made.status_code == 201, made.content
            answer = await client.get(f"/api/v1/artifacts/{made.json()['id']}/content", headers=headers)
            assert answer.is_async
            return b"".join([part async for part in answer])
        finally:
            await sync_to_async(connections.close_all)()

    assert asyncio.run(exchange()) == b"0123456789"


def test_a_chunked_body_is_read_although_it_has_no_length(api: Api) -> None:
    """Raised by clients that stream: DRF takes a body without a Content-Length for an empty one."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/artifacts",
        "query_string": b"name=a",
        "headers": [
            (b"transfer-encoding", b"chunked"),
            (b"content-type", b"text/plain"),
            (b"authorization", f"Bearer {api.key}".encode()),
        ],
    }
    answer = ArtifactsView.as_view()(ASGIRequest(scope, io.BytesIO(b"0123456789")))
    assert (answer.status_code, answer.data["size"]) == (201, 10)
