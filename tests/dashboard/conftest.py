"""One browser and one embedded service for all pages."""

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import chromium, sign_in
from tests.harness import running

expect.set_options(timeout=30_000)  # a watchdog, not a measurement


@pytest.fixture(scope="package")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
def site(tmp_path_factory):
    with running("embedded", tmp_path_factory.mktemp("dashboard")) as started:
        yield started


class Watched:
    """A browser's context that records whatever should not happen."""

    def __init__(self, browser, url, **options):
        self.url, self.errors, self.refusals, self.foreign = url, [], [], []
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(30_000)
        self.context.on("console", self._console)
        self.context.on("weberror", lambda error: self.errors.append(str(error.error)))
        self.context.on("request", self._request)
        self.context.on("response", self._response)

    def _console(self, message):
        # Chromium logs every refused request too; those are counted by status instead.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def _request(self, request):
        if not request.url.startswith((self.url, "blob:")):
            self.foreign.append(request.url)

    def _response(self, response):
        if response.status >= 400:
            self.refusals.append((response.status, response.request.method, response.url))

    def sign_in(self, person, path=""):
        page = self.context.new_page()
        sign_in(page, self.url, person.key, path)
        return page


@pytest.fixture
def visit(browser, site):
    """Somebody's browser; at the end: no console error, nothing left the origin, no surprise."""
    opened = []

    def open_(person=None, path="", **options):
        watched = Watched(browser, site.url, **options)
        opened.append(watched)
        if person is None:
            page = watched.context.new_page()
            page.goto(f"{site.url}/{path}")
        else:
            page = watched.sign_in(person, path)
        page.watched = watched
        return page

    open_.refused = set()  # the statuses that the test is about
    yield open_
    for watched in opened:
        watched.context.close()
        assert watched.errors == [] == watched.foreign
        assert {status for status, _, _ in watched.refusals} <= open_.refused, watched.refusals
