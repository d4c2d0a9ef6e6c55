"""A schema registry on a port of this machine, as far as clients need one."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry(BaseHTTPRequestHandler):
    """Keeps schemas by number, as far as serializers ask for them."""

    schemas: dict[int, dict[str, Any]]
    fails = False

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = next((key for key, each in self.schemas.items() if each == content), len(self.schemas) + 1)
        self.schemas[number] = content
        self._answer(200, {"id": number, "version": 1, "subject": "shots-value", **content})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].split("/")
        if self.fails:
            self._answer(503, {"error_code": 503, "message": "no leader"})
        elif path[1] == "schemas" and path[-1].isdecimal() and int(path[-1]) in self.schemas:
            self._answer(200, self.schemas[int(path[-1])])
        else:
            self._answer(404, {"error_code": 40403, "message": "Schema not found"})

    def _answer(self, status: int, content: Mapping[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def registry() -> Iterator[tuple[str, Any]]:
    handler = type("Registry", (Registry,), {"schemas": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", handler
        finally:
            server.shutdown()
            thread.join()
