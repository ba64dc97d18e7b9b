"""A real Chromium, found on this machine: tools/dev.py installs it where that is allowed."""

import shutil
from contextlib import contextmanager

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Root may not use Chromium's sandbox, and a container's /dev/shm is small.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]


def find_browser(which=shutil.which):
    found = [path for path in map(which, NAMES) if path]
    if not found:
        raise RuntimeError(
            "the dashboard's tests need Chromium and none is on the PATH. Run: apt install chromium"
        )
    return found[0]


@contextmanager
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def sign_in(page, url, key, path=""):
    page.goto(f"{url}/{path}")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Sign out").wait_for()
