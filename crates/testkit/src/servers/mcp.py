"""An MCP server for tests: polite by default, and as hostile as its first argument says."""

import json
import os
import subprocess
import sys
import time

kind = sys.argv[1] if len(sys.argv) > 1 else "polite"
tools = ["echo", "picture", "fail", "slow", "huge", "grow", "die", "pids", "hold", "structured"]
if kind == "demo":
    tools = ["echo"]
if kind == "searches":
    tools = ["echo", "web_search", "search_notes"]


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def text(request, words, **more):
    answer(request, {"content": [{"type": "text", "text": words}], **more})


def call(request):
    params = request["params"]
    name, arguments = params["name"], params.get("arguments", {})
    if name == "echo":
        text(request, "mcp:" + arguments["t"] if "t" in arguments else "echo: " + str(arguments.get("text")))
    elif name == "picture":
        pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
        content = [
            {"type": "text", "text": "look"},
            {"type": "image", "data": pixel, "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "memo://1", "text": "a memo"}},
            {"type": "resource_link", "name": "more", "uri": "memo://2"},
        ]
        answer(request, {"content": content})
    elif name == "fail":
        text(request, "it went wrong", isError=True)
    elif name == "slow":
        token = params.get("_meta", {}).get("progressToken")
        for step in range(int(arguments.get("steps", 0))):
            time.sleep(0.2)
            progress = {"progressToken": token, "progress": step, "message": "step %d" % step}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        if arguments.get("steps"):
            text(request, "done")
        # Without steps there is never an answer.
    elif name == "huge":
        text(request, "x" * int(arguments.get("bytes", 100_000_000)))
    elif name == "grow":
        tools.append("grown")
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        text(request, "there is more now")
    elif name == "grown":
        text(request, "so it has")
    elif name == "die":
        sys.stderr.write("I cannot go on\n")
        sys.exit(3)
    elif name == "pids":
        child = subprocess.Popen(["sleep", "100"], stdin=subprocess.DEVNULL, start_new_session=True)
        text(request, "%d %d" % (os.getpid(), child.pid))
    elif name == "hold":
        # Whoever reads that pipe sees its end when neither this process nor its child is left.
        pipe = os.open(arguments["path"], os.O_WRONLY)
        subprocess.Popen(["sleep", "100"], stdin=subprocess.DEVNULL, pass_fds=[pipe], start_new_session=True)
        os.write(pipe, b"started\n")
    elif name == "web_search":
        text(request, "found %s, %d times" % (arguments["query"], arguments["count"]))
    elif name == "search_notes":
        text(request, "notes about %s" % arguments["query"])
    elif name == "structured":
        answer(request, {"content": [], "structuredContent": {"answer": 42}})
    else:
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "Unknown tool"}})


def listing(name):
    properties = {"text": {"type": "string"}, "path": {"type": "string"}, "steps": {"type": "integer"}}
    if "search" in name:
        properties = {"query": {"type": "string"}, "count": {"type": "integer"}}
    return {"name": name, "description": "The tool " + name, "inputSchema": {"type": "object", "properties": properties}}


def handle(request):
    method = request.get("method")
    if method == "initialize":
        listed = {"listChanged": True}
        capabilities = {"tools": listed} if kind == "demo" else {"tools": listed, "prompts": listed, "resources": {}}
        info = {"name": "test", "version": "1"}
        result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
        answer(request, {**result, "instructions": "Echo before you leap."})
    elif method == "tools/list":
        # Two pages, to see that both are read.
        cursor = request.get("params", {}).get("cursor")
        if cursor:
            answer(request, {"tools": [listing(name) for name in tools[2:]]})
        else:
            answer(request, {"tools": [listing(name) for name in tools[:2]], "nextCursor": "2"})
    elif method == "tools/call":
        call(request)
    elif method == "prompts/list":
        prompt = {"name": "greet", "description": "Greets", "arguments": [{"name": "who"}, {"name": "how"}]}
        answer(request, {"prompts": [prompt]})
    elif method == "prompts/get":
        arguments = request["params"].get("arguments", {})
        words = "Greet %s in a %s way" % (arguments.get("who"), arguments.get("how"))
        answer(request, {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]})
    elif method == "resources/list":
        answer(request, {"resources": [{"uri": "memo://1", "name": "memo", "mimeType": "text/plain"}]})
    elif method == "resources/templates/list":
        answer(request, {"resourceTemplates": [{"uriTemplate": "memo://{n}", "name": "memos"}]})
    elif method == "resources/read":
        uri = request["params"]["uri"]
        answer(request, {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "the memo " + uri}]})
    elif "id" in request and method:
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "Method not found"}})


if kind == "gone":
    sys.stderr.write("no such database\n")
    sys.exit(7)
if kind == "flood":
    while True:
        sys.stdout.write("y" * 65536)
for line in sys.stdin:
    if kind == "mute":
        continue
    if kind == "noisy":
        sys.stdout.write("Starting up...\n\n{not json}\n[1, 2]\n\"text\"\n{\"jsonrpc\": \"2.0\"}\n")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\xff\xfe\x00 bytes\n")
        sys.stdout.buffer.flush()
        send({"jsonrpc": "2.0", "id": 999, "result": {}})
        send({"jsonrpc": "2.0", "id": "ask", "method": "sampling/createMessage", "params": {}})
        send({"jsonrpc": "2.0", "id": "root", "method": "roots/list"})
    handle(json.loads(line))
