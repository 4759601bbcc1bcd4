"""`/profiles`: named pointers to configs, with their history."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import profiles
from sessions_app.api import shapes
from sessions_app.api.base import ApiView
from sessions_app.api.fields import Body, ConfigRef, Name
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import PageQuery, page
from sessions_app.idempotency import Answer
from sessions_app.models import ProfileVersion


class CreateProfile(Body):
    """A new profile. Names are unique in a project, whatever their case."""

    name: Name
    config: ConfigRef


class RenameProfile(Body):
    name: Name


class MoveProfile(Body):
    """`expected_config` is the config that the caller saw the profile point to."""

    config: ConfigRef
    expected_config: ConfigRef


class ProfilesView(ApiView):
    @operation(
        "create_profile",
        "Create a profile",
        tag="configs",
        body=CreateProfile,
        answers={201: shapes.Profile},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request) -> Response:
        """409 `profile_exists` where the name is taken."""
        body = self.body(CreateProfile)

        def effect() -> Answer:
            row = profiles.create_profile(
                project=self.project, name=body.name, config=body.config, actor=self.access.actor
            )
            return Answer(201, shapes.profile(row))

        return self.once(effect)

    @operation(
        "list_profiles",
        "List profiles",
        tag="configs",
        query=PageQuery,
        answers={200: page_of(shapes.Profile)},
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        rows = profiles.profiles_of(self.project)
        return Response(page(rows, self.query(PageQuery), shapes.profile, name="profiles"))


class ProfileView(ApiView):
    path_ids = {"profile": "prf"}

    @operation("get_profile", "Read a profile", tag="configs", answers={200: shapes.Profile}, errors=[404])
    def get(self, request: Request, profile: UUID) -> Response:
        """The profile with the config it points to."""
        return Response(shapes.profile(profiles.get_profile(project=self.project, profile=profile)))

    @operation(
        "rename_profile",
        "Rename a profile",
        tag="configs",
        body=RenameProfile,
        answers={200: shapes.Profile},
        errors=[404, 409],
    )
    def patch(self, request: Request, profile: UUID) -> Response:
        """Its config is changed by `/config`, which says from where it starts."""
        body = self.body(RenameProfile)
        row = profiles.rename_profile(project=self.project, profile=profile, name=body.name)
        return Response(shapes.profile(row))

    @operation("delete_profile", "Delete a profile", tag="configs", answers={204: None}, errors=[404])
    def delete(self, request: Request, profile: UUID) -> Response:
        """Sessions that were started with it go on."""
        profiles.delete_profile(project=self.project, profile=profile)
        return Response(status=204)


class ProfileConfigView(ApiView):
    path_ids = {"profile": "prf"}

    @operation(
        "move_profile",
        "Point a profile to another config",
        tag="configs",
        body=MoveProfile,
        answers={200: shapes.Profile},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, profile: UUID) -> Response:
        """409 `profile_moved`, with the profile in `current`, where somebody else moved it meanwhile."""
        body = self.body(MoveProfile)

        def effect() -> Answer:
            row = profiles.move_profile(
                project=self.project,
                profile=profile,
                config=body.config,
                expected_config=body.expected_config,
                actor=self.access.actor,
            )
            return Answer(200, shapes.profile(row))

        return self.once(effect)


class ProfileVersionsView(ApiView):
    path_ids = {"profile": "prf"}

    @operation(
        "list_profile_versions",
        "List a profile's versions",
        tag="configs",
        query=PageQuery,
        answers={200: page_of(shapes.ProfileVersionShape)},
        errors=[404],
    )
    def get(self, request: Request, profile: UUID) -> Response:
        """Newest first: which config, since when, and who moved it there."""
        row = profiles.get_profile(project=self.project, profile=profile)
        versions = ProfileVersion.objects.filter(profile=row)
        return Response(
            page(versions, self.query(PageQuery), shapes.profile_version, name=f"versions {row.pk.hex}")
        )
