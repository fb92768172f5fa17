"""The official Python SDK with the agent of a server, over HTTP. It reads a session's stream only once it has heard of it."""

import asyncio
import os

import acp
from acp.http import create_http_stream

from acp_editor import LONGEST, Editor, gate, script

URL = os.environ["TREFOIL_URL"] + "/acp"
DIRECTORY = os.environ["TREFOIL_DIRECTORY"]


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

    stays = script({"chunks": 4, "hold": gate(DIRECTORY, "never")})
    slow = asyncio.ensure_future(agent.prompt(session_id=session, prompt=stays))
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


asyncio.run(asyncio.wait_for(life(), LONGEST))
