"""What the A2A scripts share: the service under test, its prompts, a webhook, and the runner of the tests.

TREFOIL_A2A is a JSON object: `url` and `token` of the service, `transport` ("JSONRPC" or "HTTP+JSON"), `key` (the public JWK
of what signs its cards), `scratch` (a folder) and `prompts`: name -> {"text", "answer"}. Where a text has `{gate}`, the agent
waits until that file exists. TREFOIL_A2A_ONLY runs only the tests whose names contain it.
"""

import asyncio
import http.server
import json
import os
import sys
import threading
import traceback
import uuid

import httpx

SETUP = json.loads(os.environ["TREFOIL_A2A"])
URL = SETUP["url"]
TRANSPORT = SETUP.get("transport", "JSONRPC")
HEADERS = {"Authorization": f"Bearer {SETUP['token']}"}

# How long anything may take, in seconds.
PATIENCE = 60


class Prompt:
    """A prompt, the answer that it gets, and the file that lets the agent go on."""

    def __init__(self, name):
        prompt = SETUP["prompts"][name]
        self.answer = prompt["answer"]
        self.gate = os.path.join(SETUP["scratch"], uuid.uuid4().hex)
        self.text = prompt["text"].replace("{gate}", self.gate)

    def release(self):
        """Lets the agent go on."""
        open(self.gate, "w").close()


async def soon(what, awaitable):
    """What it gives; fails with what was awaited if that takes too long."""
    try:
        return await asyncio.wait_for(awaitable, PATIENCE)
    except TimeoutError:
        raise AssertionError(f"no {what} within {PATIENCE} s") from None


async def rpc(method, params, extensions=()):
    """Calls a method of an extension, for which the SDKs have no function."""
    headers = HEADERS | {"A2A-Extensions": ",".join(extensions)} if extensions else HEADERS
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with httpx.AsyncClient(timeout=PATIENCE) as http:
        reply = (await http.post(URL, headers=headers, json=body)).json()
    assert "error" not in reply, f"{method}: {reply}"
    return reply["result"]


async def refused(kind, awaitable, *words):
    """The call must fail with this kind of error, whose text has these words."""
    try:
        result = await awaitable
    except kind as error:
        assert all(word in str(error) for word in words), f"{error!r} does not say {words}"
        return error
    raise AssertionError(f"no {kind.__name__}, but {result!r}")


class Webhook:
    """Takes notifications at an address of this machine."""

    def __init__(self):
        self.received = []
        self._arrived = threading.Condition()
        webhook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()
                # Those of a configuration that is removed again are not what the tests look at.
                if self.path != "/hook":
                    return
                with webhook._arrived:
                    webhook.received.append((dict(self.headers.items()), body))
                    webhook._arrived.notify_all()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    async def until(self, fits):
        """All notifications up to the first that fits."""

        def wait():
            with self._arrived:
                found = self._arrived.wait_for(lambda: any(fits(body) for _, body in self.received), PATIENCE)
                assert found, f"not notified within {PATIENCE} s: {self.received}"
                last = next(n for n, (_, body) in enumerate(self.received) if fits(body))
                return self.received[: last + 1]

        return await asyncio.to_thread(wait)

    def close(self):
        self._server.shutdown()


def main(*tests):
    """Runs the tests one after the other; exits with 1 if one fails."""
    only = os.environ.get("TREFOIL_A2A_ONLY", "")
    failed = []
    for test in (test for test in tests if only in test.__name__):
        try:
            asyncio.run(soon("end of the test", test()))
            print(f"ok      {test.__name__}", flush=True)
        except BaseException:
            traceback.print_exc()
            failed.append(test.__name__)
            print(f"FAILED  {test.__name__}", flush=True)
    if failed:
        sys.exit(f"{TRANSPORT}: {len(failed)} of {len(tests)} failed: {', '.join(failed)}")
