"""The official Python SDK hears of commands as they are written, and of those of the MCP servers that it brings: from an agent
in a process of its own (own), in front of a server (attach), or in that server (http)."""

import asyncio
import contextlib
import json
import os
import pathlib
import sys

import acp
from acp import schema
from acp.http import create_http_stream

from acp_editor import LONGEST, Editor

DIRECTORY = pathlib.Path(os.environ["TREFOIL_DIRECTORY"])
COMMAND = DIRECTORY / ".opencode" / "command" / "greet.md"


def says(text):
    return "SCRIPT: " + json.dumps([{"text": text}])


@contextlib.asynccontextmanager
async def connected(editor, way):
    url = os.environ["TREFOIL_URL"]
    if way == "http":
        stream = create_http_stream(url + "/acp")
        yield acp.connect_to_agent(editor, stream)
        await stream.close()
        return
    program = [os.environ["TREFOIL_BIN"], "acp", *(["--attach", url] if way == "attach" else [])]
    async with acp.spawn_agent_process(editor, *program, env=dict(os.environ)) as (agent, _):
        yield agent


async def life(way):
    editor = Editor()
    async with connected(editor, way) as agent:
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        server = schema.McpServerStdio(name="s", command="python3", args=[os.environ["MCP_SERVER"], "polite"], env=[])
        session = (await agent.new_session(cwd=str(DIRECTORY), mcp_servers=[server])).session_id

        def offered():
            lists = editor.of(session, "available_commands_update")
            return [command.name for command in lists[-1].available_commands] if lists else []

        async def run(command):
            ended = await agent.prompt(session_id=session, prompt=[acp.text_block(command)])
            assert ended.stop_reason == "end_turn", ended

        await editor.until("command of the server", lambda: "s:greet" in offered())
        assert "greet" not in offered(), offered()
        COMMAND.parent.mkdir(parents=True)
        COMMAND.write_text(says("Hello."))
        await editor.until("command of the project", lambda: "greet" in offered())
        await run("/greet")
        await editor.says(session, "Hello.")
        COMMAND.write_text(says("Good morning."))
        await run("/greet")
        await editor.says(session, "Good morning.")
        COMMAND.unlink()
        await editor.until("list without the command", lambda: "greet" not in offered())
        assert "s:greet" in offered(), offered()
        await run("/s:greet Bob kindly")


asyncio.run(asyncio.wait_for(life(sys.argv[1]), LONGEST))
