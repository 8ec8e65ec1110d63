"""The queue from Python: a client of ``margay-queue api``, with the standard library alone.

    from margay_mpi.queue import Queue
    queue = Queue()                      # the Unix socket of this user's queue
    job = queue.submit(command=["./simulate"], options=["-n", "4", "--time=1:00:00"])
    print(queue.wait(job)[0]["state"])

``Queue("http://host:port", token="...")`` talks to one that listens on a network.
"""

import http.client
import json
import os
import pathlib
import socket
import urllib.parse

__all__ = ["Queue", "QueueError"]


class QueueError(Exception):
    """What the queue refuses, with its reason; ``status`` is that of HTTP."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class _Local(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _usual_socket():
    state = os.environ.get("XDG_STATE_HOME")
    if not state:
        state = "/var/lib" if os.getuid() == 0 else pathlib.Path.home() / ".local/state"
    return pathlib.Path(state) / "margay/queue/api.sock"


class Queue:
    """A queue; ``address`` is the path of its socket, or begins with ``http://``."""

    def __init__(self, address=None, token=None, timeout=60):
        self._address = str(address or _usual_socket())
        self._token = token
        self._timeout = timeout

    def _open(self, method, path, body, timeout):
        if self._address.startswith("http://"):
            place = urllib.parse.urlsplit(self._address)
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=timeout)
        else:
            connection = _Local(self._address, timeout)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection, connection.getresponse()

    def _ask(self, method, path, body=None, timeout=0):
        connection, response = self._open(method, path, body, self._timeout if timeout == 0 else timeout)
        try:
            value = json.loads(response.read())
        finally:
            connection.close()
        if response.status >= 400:
            raise QueueError(response.status, value.get("error", ""))
        return value

    def machine(self):
        """The machine, as a dictionary."""
        return self._ask("GET", "/v1/machine")

    def submit(self, script=None, *, command=None, arguments=(), options=(), directory=None, environment=None):
        """Submits the text of a script, or a command; returns the job's number."""
        body = {"options": list(map(str, options)), "directory": str(directory or os.getcwd())}
        if script is not None:
            body.update(script=script, arguments=list(map(str, arguments)))
        if command is not None:
            body["command"] = list(map(str, command))
        if environment:
            body["environment"] = dict(environment)
        return self._ask("POST", "/v1/jobs", body)["id"]

    def jobs(self, all=False, **asked):
        """Jobs that wait or run, with ``all`` also those that have ended; ``state``, ``user`` and ``name`` choose."""
        query = urllib.parse.urlencode({"all": int(all), **asked})
        return self._ask("GET", f"/v1/jobs?{query}")

    def job(self, job):
        """A job; a list for an array."""
        return self._ask("GET", f"/v1/jobs/{job}")

    def wait(self, job):
        """Waits until a job, or an array, has ended; returns a list."""
        return self._ask("GET", f"/v1/jobs/{job}/wait", timeout=None)

    def explain(self, job):
        """Says why a job does not run."""
        return self._ask("GET", f"/v1/jobs/{job}/explain")["text"]

    def cancel(self, job):
        """Ends a job."""
        self._ask("DELETE", f"/v1/jobs/{job}")

    def hold(self, job):
        """Holds a job that waits."""
        self._ask("POST", f"/v1/jobs/{job}/hold")

    def release(self, job):
        """Lets a held job go."""
        self._ask("POST", f"/v1/jobs/{job}/release")

    def requeue(self, job):
        """Ends a running job and lets it begin anew."""
        self._ask("POST", f"/v1/jobs/{job}/requeue")

    def signal(self, job, signal, to_script=False):
        """Sends the processes of a running job a signal, by its name or number."""
        self._ask("POST", f"/v1/jobs/{job}/signal", {"signal": signal, "to_script": to_script})

    def change(self, job, **fields):
        """Changes a job that waits: ``name``, ``limit_s``, ``priority``, ``account``."""
        self._ask("PATCH", f"/v1/jobs/{job}", fields)

    def events(self):
        """Yields jobs as they change, beginning with those that wait or run."""
        connection, response = self._open("GET", "/v1/events", None, None)
        try:
            if response.status >= 400:
                raise QueueError(response.status, json.loads(response.read()).get("error", ""))
            for line in response:
                if line.startswith(b"data: "):
                    value = json.loads(line[6:])
                    if "error" in value:
                        raise QueueError(503, value["error"])
                    yield value
        finally:
            connection.close()
