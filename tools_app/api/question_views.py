"""`/questions`: forms that agents put to people."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.base import ApiView
from sessions_app.api.openapi import operation, page_of
from sessions_app.api.pagination import page
from sessions_app.errors import NotFound
from sessions_app.idempotency import Answer
from tools_app import questions
from tools_app.api import people_shapes as shapes
from tools_app.api.people_requests import Assign, GiveAnswer, QuestionsQuery
from tools_app.models import Question


class QuestionsView(ApiView):
    @operation(
        "list_questions",
        "List questions",
        tag="questions",
        query=QuestionsQuery,
        answers={200: page_of(shapes.QuestionShape)},
    )
    def get(self, request: Request) -> Response:
        """Newest first, of the whole project. `state=open` lists what waits for people."""
        query = self.query(QuestionsQuery)
        rows = Question.objects.filter(project_id=self.project, **query.lookups())
        return Response(page(rows, query, shapes.question, name="questions"))


class QuestionDoor(ApiView):
    path_ids = {"question": "qst"}

    def visible(self, question: UUID) -> Question:
        row = Question.objects.filter(pk=question, project_id=self.project).first()
        if row is None:
            raise NotFound("no such question")
        return row


class QuestionView(QuestionDoor):
    @operation(
        "get_question",
        "Read a question",
        tag="questions",
        answers={200: shapes.QuestionShape},
        errors=[404],
    )
    def get(self, request: Request, question: UUID) -> Response:
        """One form, whatever became of it."""
        return Response(shapes.question(self.visible(question)))

    @operation(
        "assign_question",
        "Assign a question",
        tag="questions",
        body=Assign,
        answers={200: shapes.QuestionShape},
        errors=[404, 409],
    )
    def patch(self, request: Request, question: UUID) -> Response:
        """Says whose it is, for the inbox. Anybody may still answer it."""
        body = self.body(Assign)
        self.visible(question)
        return Response(shapes.question(questions.assign(question=question, assignee=body.assignee)))


class AnswerView(QuestionDoor):
    @operation(
        "answer_question",
        "Answer a question",
        tag="questions",
        body=GiveAnswer,
        answers={200: shapes.QuestionShape},
        errors=[404],
        creates=True,
    )
    def post(self, request: Request, question: UUID) -> Response:
        """The first answer counts and becomes the result of the call; the same one again answers 200.

        Answers that do not fit the form are 400 with every mistake, and the question stays open. Any other answer
        is 409 with the question as it is: `question_answered` says who answered and when, `question_cancelled` and
        `question_expired` that nobody waits for one any more.
        """
        body = self.body(GiveAnswer)
        self.visible(question)

        def effect() -> Answer:
            row = questions.answer(question=question, answers=body.answers, actor=self.actor(body.actor))
            return Answer(200, shapes.question(row))

        return self.once(effect)
