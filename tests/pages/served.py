"""`./start` as a child process, as a person would have it in a terminal."""

import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.processes import ROOT, environment, family, manage, processes_of


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Served:
    """One instance; `start_again` goes on with the same data on the same port."""

    def __init__(self, home, *arguments, port=None):
        self.home, self.arguments, self.family = home, arguments, []
        self.port = port or free_port()
        self.said, self.warned = home / "stdout.txt", home / "stderr.txt"
        self.start_again()

    def start_again(self):
        """Start and wait for the line with the address."""
        argv = ["./start", "--port", str(self.port), *self.arguments]
        variables = {"REGROUP_EXTRAS": "none", **environment(self.home)}
        with self.said.open("w") as out, self.warned.open("w") as err:
            self.process = subprocess.Popen(
                argv, cwd=ROOT, env=variables, stdout=out, stderr=err, start_new_session=True
            )
        deadline = time.monotonic() + 120
        while not (line := re.search(r"^Regroup: (\S+)(/login/\S+) \(works once\)$", self.said.read_text(), re.M)):
            assert self.process.poll() is None, self.warned.read_text()
            assert time.monotonic() < deadline, f"no address: {self.warned.read_text()}"
            time.sleep(0.05)
        self.url = line[1]
        self.login_link = line[1] + line[2]

    def new_link(self):
        """What `manage.py login_link` prints."""
        process = manage(self.home, "login_link", "--port", self.port, stdout=subprocess.PIPE)
        return process.communicate(timeout=60)[0].strip()

    def get(self, path="/", **headers):
        """A response without a browser, redirects not followed."""
        return ask(self.url + path, **headers)

    def stop(self, number=signal.SIGINT):
        """Ctrl-C, as a terminal would send it; how many seconds it took."""
        began, self.family = time.monotonic(), family(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(30)
        return time.monotonic() - began

    def kill9(self):
        """No time to tidy up."""
        self.family = family(self.process.pid)
        self.process.kill()
        self.process.wait()

    def left_over(self, seconds=5):
        """Processes of its family, or of its home, that are still there after it has ended."""
        deadline = time.monotonic() + seconds
        while (left := [*processes_of(self.home), *filter(_is_there, self.family)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


def _is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_, **__):
        return None


def ask(url, *, method="GET", data=None, **headers):
    """Status, headers and text of a response, whatever its status."""
    request = urllib.request.Request(url, method=method, data=data, headers=headers)
    opener = urllib.request.build_opener(_Stay)
    try:
        response = opener.open(request, timeout=30)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        return response.status, response.headers, response.read().decode()
