"""Artifacts: files that the log refers to."""

import dataclasses
import hashlib
import io
from pathlib import Path

import pytest
from django.conf import LazySettings

from sessions_app import artifacts, ids
from sessions_app.artifacts import ArtifactTooLarge
from sessions_app.errors import Invalid, NotFound
from sessions_app.models import Artifact, Project
from tests import factories


@pytest.fixture
def project(db: None) -> Project:
    return factories.project()


@pytest.fixture(autouse=True)
def folder(settings: LazySettings, tmp_path: Path) -> Path:
    options = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": tmp_path}}
    settings.STORAGES = settings.STORAGES | {"default": options}
    return tmp_path


def stored(project: Project, data: bytes | io.BytesIO = b"hello", name: str = "a.txt") -> Artifact:
    return artifacts.store(project=project.id, name=name, media_type="text/plain", data=data)


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"\x00\xff" * 2_000_000], ids=["empty", "short", "several pieces"]
)
@pytest.mark.parametrize("stream", [False, True])
def test_bytes_come_back_as_they_were(project: Project, data: bytes, stream: bool) -> None:
    """S8."""
    artifact = stored(project, io.BytesIO(data) if stream else data)
    assert artifacts.read(artifact) == data
    assert (artifact.size, artifact.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    with artifacts.open_artifact(artifact) as opened:
        opened.seek(max(0, len(data) - 2))
        assert opened.read() == data[-2:]


def test_the_same_bytes_are_stored_once_in_a_project(project: Project, folder: Path) -> None:
    """S8: two artifacts, one file; another project has a file of its own."""
    one, two = stored(project, name="one"), stored(project, name="two")
    assert one.storage_name == two.storage_name
    assert (one.name, two.name) == ("one", "two")
    stored(factories.project())
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 2


def test_a_file_that_was_cut_off_is_not_taken_for_the_whole(project: Project, folder: Path) -> None:
    """S8: a crash in the middle of a write leaves a file of the right name."""
    first = stored(project)
    (folder / first.storage_name).write_bytes(b"he")
    second = stored(project)
    assert second.storage_name != first.storage_name
    assert artifacts.read(second) == b"hello"


@pytest.mark.parametrize("stream", [False, True])
def test_a_file_over_the_limit_is_refused_and_leaves_nothing(
    project: Project, folder: Path, settings: LazySettings, stream: bool
) -> None:
    """S8."""
    settings.TENURE = dataclasses.replace(settings.TENURE, max_artifact_bytes=1024)
    assert stored(project, b"x" * 1024).size == 1024
    data = b"y" * 1025
    with pytest.raises(ArtifactTooLarge, match="at most 1024 bytes"):
        stored(project, io.BytesIO(data) if stream else data)
    assert Artifact.objects.count() == 1
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize(
    "media_type", ["", "text", "text/", "text/plain\nX: y", "text/plain; \x00", "a" * 300 + "/b"]
)
def test_what_is_no_media_type_is_refused(project: Project, media_type: str) -> None:
    """It goes into a response header later."""
    with pytest.raises(Invalid):
        artifacts.store(project=project.id, name="x", media_type=media_type, data=b"")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a.txt", "a.txt"),
        ("a\x00b\r\n.txt", "a\ufffdb.txt"),
        ("dir/", "file"),
        ("", "file"),
        ("x" * 400, "x" * 255),
    ],
)
def test_a_name_is_a_label_for_people(project: Project, name: str, kept: str) -> None:
    """S8."""
    assert stored(project, name=name).name == kept


def test_another_projects_artifact_is_not_there(project: Project) -> None:
    """Every object of another project is a 404."""
    artifact = stored(factories.project())
    with pytest.raises(NotFound):
        artifacts.get(project=project.id, artifact=artifact.id)
    with pytest.raises(NotFound):
        artifacts.get(project=project.id, artifact=ids.new_id())
    assert artifacts.find(project.id, artifact.id) is None
    assert artifacts.get(project=artifact.project_id, artifact=artifact.id) == artifact


def test_lost_bytes_are_told_and_do_not_stop_a_session(project: Project, folder: Path) -> None:
    """S8: whoever builds a request asks `find`, whoever downloads gets a 404."""
    artifact = stored(project)
    assert artifacts.find(project.id, artifact.id) == artifact
    (folder / artifact.storage_name).unlink()
    assert artifacts.find(project.id, artifact.id) is None
    with pytest.raises(NotFound, match="gone"):
        artifacts.read(artifact)
