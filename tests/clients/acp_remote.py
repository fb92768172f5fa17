"""The official Python SDK with the agent of a server, over HTTP. It reads a session's stream only once it has heard of it."""

import asyncio
import json
import os

import acp
from acp import schema
from acp.http import create_http_stream

URL = os.environ["TREFOIL_URL"] + "/acp"
DIRECTORY = os.environ["TREFOIL_DIRECTORY"]


def script(*steps):
    return [acp.text_block("SCRIPT: " + json.dumps(steps))]


class Editor(acp.Client):
    def __init__(self):
        self.updates, self.asked, self.news = [], [], asyncio.Event()

    async def session_update(self, session_id, update, **_):
        self.updates.append((session_id, update))
        self.news.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append(tool_call)
        once = next(option for option in options if option.kind == "allow_once")
        outcome = schema.AllowedOutcome(outcome="selected", option_id=once.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    def text(self, session):
        chunks = [u for id, u in self.updates if id == session and u.session_update == "agent_message_chunk"]
        return "".join(chunk.content.text for chunk in chunks)

    async def says(self, session, end):
        """Updates and answers come in streams of their own."""
        while not self.text(session).endswith(end):
            self.news.clear()
            await self.news.wait()


async def connect():
    editor, stream = Editor(), create_http_stream(URL)
    agent = acp.connect_to_agent(editor, stream)
    hello = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
    assert hello.agent_info.name == "trefoil", hello
    return editor, agent, stream


async def life():
    editor, agent, stream = await connect()
    session = (await agent.new_session(cwd=DIRECTORY, mcp_servers=[])).session_id
    steps = script({"text": "Working. ", "tools": [["bash", {"command": "echo hi"}]]}, {"text": "Done."})
    ended = await agent.prompt(session_id=session, prompt=steps)
    assert ended.stop_reason == "end_turn", ended
    await editor.says(session, "Done.")
    assert editor.text(session) == "Working. Done.", editor.text(session)
    assert [call.kind for call in editor.asked] == ["execute"], editor.asked

    slow = asyncio.ensure_future(agent.prompt(session_id=session, prompt=script({"chunks": 1000, "chunk_delay_ms": 20})))
    await editor.says(session, "w3 ")
    await agent.cancel(session_id=session)
    assert (await slow).stop_reason == "cancelled"

    # On another connection, where the conversation comes before anybody reads the session's stream.
    other, second, another = await connect()
    await second.load_session(cwd=DIRECTORY, session_id=session, mcp_servers=[])
    ended = await second.prompt(session_id=session, prompt=script({"text": "Again."}))
    assert ended.stop_reason == "end_turn", ended
    await other.says(session, "Again.")
    assert other.text(session).startswith("Working. Done.w0 w1 "), other.text(session)
    await editor.says(session, "Again.")
    await another.close()
    await stream.close()


asyncio.run(asyncio.wait_for(life(), 60))
