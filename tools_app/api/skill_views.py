"""`/skills`: named packages of instructions, in versions that never change."""

from typing import Annotated, TypedDict

from pydantic import Field, StrictStr
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api import shapes
from sessions_app.api.base import ApiView
from sessions_app.api.fields import ActorRef, Body, Query
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import PageQuery, page
from tools_app import skills
from tools_app.models import SkillVersion


class SkillSummaryShape(TypedDict):
    """A version of a skill. `reviewed_by` is who allowed it, where an agent wrote it and a person was asked."""

    name: str
    version: int
    description: str
    created_by: shapes.ActorShape
    reviewed_by: shapes.ActorShape | None
    created_at: shapes.Time


class SkillShape(SkillSummaryShape):
    """The same with the text that a session loads."""

    instructions: str


class PutSkill(Body):
    """`description` tells the model what the skill is about and when to load it."""

    description: Annotated[StrictStr, Field(min_length=1, max_length=skills.MAX_DESCRIPTION)]
    instructions: Annotated[StrictStr, Field(min_length=1, max_length=skills.MAX_INSTRUCTIONS)]
    actor: ActorRef | None = None


class SkillQuery(Query):
    version: Annotated[int, Field(ge=1, le=10**9, description="another version than the newest")] | None = (
        None
    )


class SkillsView(ApiView):
    @operation(
        "list_skills",
        "List skills",
        tag="skills",
        query=PageQuery,
        answers={200: page_of(SkillSummaryShape)},
    )
    def get(self, request: Request) -> Response:
        """The newest version of each, without the instructions; the last one written comes first."""
        rows = skills.skills_of(self.project).defer("instructions")
        return Response(page(rows, self.query(PageQuery), _summary, name="skills"))


class SkillView(ApiView):
    @operation(
        "put_skill",
        "Write a skill",
        tag="skills",
        body=PutSkill,
        answers={201: SkillShape, 200: SkillShape},
    )
    def put(self, request: Request, name: str) -> Response:
        """201 for a new name, 200 for the next version. The text of the newest version again makes no other."""
        body = self.body(PutSkill)
        stored = skills.put_skill(
            project=self.project,
            name=name,
            description=body.description,
            instructions=body.instructions,
            actor=self.actor(body.actor),
        )
        return Response(_skill(stored.version), 201 if stored.is_new else 200)

    @operation(
        "get_skill",
        "Read a skill",
        tag="skills",
        query=SkillQuery,
        answers={200: SkillShape},
        errors=[404],
    )
    def get(self, request: Request, name: str) -> Response:
        """The newest version, or the one that is asked for."""
        query = self.query(SkillQuery)
        return Response(_skill(skills.get_skill(project=self.project, name=name, version=query.version)))

    @operation("delete_skill", "Delete a skill", tag="skills", answers={204: None}, errors=[404])
    def delete(self, request: Request, name: str) -> Response:
        """Turns that start from now on don't find it, unless their config names a version: that stays."""
        skills.delete_skill(project=self.project, name=name)
        return Response(status=204)


class SkillVersionsView(ApiView):
    @operation(
        "list_skill_versions",
        "List the versions of a skill",
        tag="skills",
        query=PageQuery,
        answers={200: page_of(SkillSummaryShape)},
        errors=[404],
    )
    def get(self, request: Request, name: str) -> Response:
        """Newest first, without the instructions."""
        rows = skills.versions_of(project=self.project, name=name).defer("instructions")
        return Response(page(rows, self.query(PageQuery), _summary, name="skill-versions"))


def _summary(row: SkillVersion) -> SkillSummaryShape:
    return {
        "name": row.skill.name,
        "version": row.version,
        "description": row.description,
        "created_by": row.created_by,
        "reviewed_by": row.reviewed_by,
        "created_at": shapes.time(row.created_at),
    }


def _skill(row: SkillVersion) -> SkillShape:
    return {**_summary(row), "instructions": row.instructions}
