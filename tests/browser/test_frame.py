"""What every page has: login, navigation, keys, themes, and room for narrow screens."""

from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.browser.visitors import Visitors


def test_a_staff_member_logs_in_and_out(people: Visitors) -> None:
    User.objects.create_user("grace", password="compile-it-then", is_staff=True)
    page = people.open("/usage", name=None)
    page.get_by_label("User name").fill("grace")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("correct")
    page.get_by_label("Password").fill("compile-it-then")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Usage")).to_be_visible()
    page.get_by_role("button", name="Log out grace").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
