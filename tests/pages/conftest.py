"""The real `./start` and a real browser."""

from pathlib import Path

import pytest

from tests.pages.served import Served
from tests.processes import calibrate

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def home(tmp_path):
    """An empty home, but for this machine's calibration."""
    calibrate(tmp_path)
    return tmp_path


@pytest.fixture
def arguments():
    """What `./start` is given besides the port; parametrize it to change that."""
    return ["--no-demo"]


@pytest.fixture
def server(home, arguments):
    """A running instance: `url`, `login_link`, `home`, `process`, `stop()`, `kill9()`, `start_again()`."""
    served = Served(home, *arguments)
    yield served
    served.stop()
    assert "Traceback" not in served.warned.read_text()


@pytest.fixture(scope="module")
def browser():
    """Chromium. While it is there Django's database cannot be used in this process, so it is not kept for longer."""
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def scheme():
    """Light; parametrize it for dark."""
    return "light"


@pytest.fixture
def problems():
    """What pages complain of: errors on the console (breaches of the CSP are some) and in scripts. Clear what a test
    provokes, such as a server that is away."""
    return []


@pytest.fixture
def context(browser, server, scheme, problems):
    """A browser of its own, for as many tabs as a test wants; not logged in."""
    opened = browser.new_context(color_scheme=scheme, base_url=server.url, viewport={"width": 1280, "height": 900})
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    opened.on("weberror", lambda error: problems.append(str(error.error)))
    yield opened
    opened.close()


@pytest.fixture
def page(context, server, problems):
    """A tab, logged in, on the list of runs; the test fails if any tab of its browser has complained."""
    tab = context.new_page()
    tab.goto(server.new_link())
    tab.wait_for_url(server.url + "/")
    yield tab
    assert problems == []
