"""Deciding and answering where one stands: in a session's card, or in the inbox.

The same services as everywhere, so the first answer counts. Whoever comes second gets the card as it is now, with
who was first and when (409); whoever comes too late can send what they wrote as a message instead (C95).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID, uuid4

from django.http import HttpRequest, HttpResponse

from sessions_app import access, ids
from sessions_app.console.pages import ConsolePage
from sessions_app.errors import Conflict, Invalid, NotFound
from sessions_app.text import clean_text
from tools_app import approvals, ask_user, questions
from tools_app.approvals import ApprovalExpired
from tools_app.console import cards
from tools_app.console.cards import NOTHING, Told
from tools_app.models import Approval, Question, ToolCall
from tools_app.questions import QuestionExpired


class Prompt(ConsolePage):
    """An action on one approval or question; it answers with the card as it is afterwards."""

    def approval(self, text: str) -> Approval:
        row = Approval.objects.select_related("project").filter(pk=decoded("apr", text)).first()
        if row is None:
            raise NotFound("no such approval")
        self.access = access.within(self.request.user, project=row.project)
        return row

    def question(self, text: str) -> Question:
        row = Question.objects.select_related("project").filter(pk=decoded("qst", text)).first()
        if row is None:
            raise NotFound("no such question")
        self.access = access.within(self.request.user, project=row.project)
        return row

    def card(self, row: Approval | Question, *, told: Told = NOTHING, status: int = 200) -> HttpResponse:
        """The card read anew."""
        if row.tool_call_id is None:
            card = cards.of_limit(Approval.objects.get(pk=row.pk), told=told)
        else:
            (card,) = cards.cards(
                row.project_id,
                ToolCall.objects.filter(pk=row.tool_call_id),
                Approval.objects.filter(tool_call=row.tool_call_id),
                Question.objects.filter(tool_call=row.tool_call_id),
                told=told,
            ).values()
        answer = self.fragment(
            card.template,
            {
                "card": card,
                "session_key": ids.encode("ses", row.session_id),
                "key": str(uuid4()),
                "unfolded": True,
            },
            status=status,
        )
        answer.headers["HX-Trigger-After-Settle"] = "console:waiting"
        return answer


class Decide(Prompt):
    def post(self, request: HttpRequest, approval: str) -> HttpResponse:
        """Allow or deny, with a reason, remembered or not."""
        row = self.approval(approval)
        decision = request.POST.get("decision", "")
        if decision not in {"allow", "deny"}:
            raise Invalid("the decision is allow or deny")
        reason = clean_text(request.POST.get("reason", "")).strip()[: approvals.MAX_REASON]
        try:
            approvals.decide(
                approval=row.pk,
                decision="allow" if decision == "allow" else "deny",
                reason=reason or None,
                remember=_remember(request) if decision == "allow" else "no",
                actor=self.access.actor,
            )
        except ApprovalExpired as error:
            words = "I would have allowed it" if decision == "allow" else "I would have denied it"
            message = f"About {row.name}: {words}, but it was too late. {reason}".strip()
            return self.card(row, told=Told(notice=_sentence(error), message=message), status=409)
        except Conflict as error:
            return self.card(row, told=Told(notice=_sentence(error), reason=reason), status=409)
        return self.card(row)


class GiveAnswer(Prompt):
    def post(self, request: HttpRequest, question: str) -> HttpResponse:
        """The form, filled in: `option-0` (one or several) and `text-0` for its first question, and so on."""
        row = self.question(question)
        answers = _answers(request, row.questions)
        try:
            questions.answer(question=row.pk, answers=answers, actor=self.access.actor)
        except QuestionExpired as error:
            told = Told(notice=_sentence(error), message=_as_message(row.questions, answers), answers=answers)
            return self.card(row, told=told, status=409)
        except Conflict as error:
            return self.card(row, told=Told(notice=_sentence(error), answers=answers), status=409)
        except Invalid as error:
            return self.card(row, told=Told(answers=answers, errors=_errors(error)), status=400)
        return self.card(row)


class Assign(Prompt):
    def post(self, request: HttpRequest, prompt: str) -> HttpResponse:
        """Takes an approval or a question on oneself, or gives it back (`to` empty)."""
        assignee = request.user.get_username()[:200] if request.POST.get("to") == "me" else None
        if prompt.startswith("apr_"):
            approvals.assign(approval=self.approval(prompt).pk, assignee=assignee)
        else:
            questions.assign(question=self.question(prompt).pk, assignee=assignee)
        words = "It is yours. Others can still answer it." if assignee else "It is nobody's."
        return changed(words)


class DecideMany(ConsolePage):
    def post(self, request: HttpRequest) -> HttpResponse:
        """All that are marked in the inbox, or none of them."""
        decision: Literal["allow", "deny"] = "allow" if request.POST.get("decision") == "allow" else "deny"
        if request.POST.get("decision") not in {"allow", "deny"}:
            raise Invalid("the decision is allow or deny")
        wanted = [decoded("apr", text) for text in dict.fromkeys(request.POST.getlist("approval"))]
        if not wanted:
            raise Invalid("Nothing is marked.")
        if Approval.objects.filter(pk__in=wanted, project_id=self.project).count() != len(wanted):
            raise NotFound("no such approval")
        reason = clean_text(request.POST.get("reason", "")).strip()[: approvals.MAX_REASON]
        decisions = [
            approvals.Decision(approval=one, decision=decision, reason=reason or None) for one in wanted
        ]
        approvals.decide_all(decisions, actor=self.access.actor)
        verb = "allowed" if decision == "allow" else "denied"
        return changed(f"{len(wanted)} {verb}.")


def changed(words: str) -> HttpResponse:
    """Says it, and has the inbox and the counts look again."""
    events = {
        "console:toast": {"text": words, "tone": "ok"},
        "console:changed": True,
        "console:waiting": True,
    }
    return HttpResponse(status=204, headers={"HX-Trigger": json.dumps(events)})


def decoded(prefix: str, text: str) -> UUID:
    try:
        return ids.decode(prefix, text)
    except ids.InvalidId:
        raise NotFound("nothing has this id") from None


def _remember(request: HttpRequest) -> approvals.Remember:
    match request.POST.get("remember"):
        case "session":
            return "session"
        case "always":
            return "always"
    return "no"


def _answers(request: HttpRequest, form: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for number in range(len(form)):
        chosen = request.POST.getlist(f"option-{number}")
        answer: dict[str, Any] = {
            "options": [int(text) for text in chosen if text.isascii() and text.isdecimal() and len(text) < 6]
        }
        text = request.POST.get(f"text-{number}", "")
        if text.strip():
            answer["text"] = text
        found.append(answer)
    return found


def _errors(error: Invalid) -> dict[int, str]:
    """The first mistake of each question, by its number; `/answers/2/text` is of the third."""
    found: dict[int, str] = {}
    for item in error.errors:
        number = item["path"].split("/")[2:3]
        if number and number[0].isdecimal():
            found.setdefault(int(number[0]), item["message"])
    return found


def _as_message(form: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]) -> str:
    stored, problems = ask_user.read_answers(form, list(answers))
    if not problems:
        return str(ask_user.content_of(form, stored)[0]["text"])
    return "\n\n".join(answer["text"] for answer in answers if answer.get("text"))


def _sentence(error: Conflict) -> str:
    return f"{error.detail[:1].upper()}{error.detail[1:].rstrip('.')}. What you chose was not taken."
