"""The whole life of a session with the official Python SDK."""

import asyncio
import os
import pathlib

import acp
from acp import schema

from acp_editor import LONGEST, Editor, gate, script

DIRECTORY = pathlib.Path(os.environ["TREFOIL_DIRECTORY"])


async def life():
    editor = Editor()
    async with acp.spawn_agent_process(editor, os.environ["TREFOIL_BIN"], "acp", env=dict(os.environ)) as (agent, process):
        files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        capabilities = schema.ClientCapabilities(fs=files, terminal=True)
        hello = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION, client_capabilities=capabilities)
        assert hello.agent_info.name == "trefoil", hello
        made = await agent.new_session(cwd=str(DIRECTORY), mcp_servers=[])
        session = made.session_id
        assert made.modes.current_mode_id == "build"

        (DIRECTORY / "note.txt").write_text("alpha\n")
        todos = [{"content": "Look", "status": "in_progress", "priority": "high"}]
        edit = {"filePath": "note.txt", "oldString": "alpha", "newString": "omega"}
        steps = script(
            {"reasoning": "Hm. ", "text": "Working. ", "tools": [["todowrite", {"todos": todos}]]},
            {"tools": [["edit", edit]]},
            {"tools": [["bash", {"command": "echo from the terminal"}]]},
            {"text": "Done."},
        )
        ended = await agent.prompt(session_id=session, prompt=steps)
        assert ended.stop_reason == "end_turn", ended
        assert editor.text(session) == "Working. Done.", editor.text(session)
        assert (DIRECTORY / "note.txt").read_text() == "omega\n"
        assert [call.kind for call in editor.asked] == ["edit", "execute"], editor.asked
        content = [item for update in editor.of(session, "tool_call_update") for item in update.content or []]
        diff = next(item for item in content if item.type == "diff")
        assert (diff.old_text, diff.new_text) == ("alpha\n", "omega\n"), diff
        terminal = next(item for item in content if item.type == "terminal")
        assert editor.terminals[terminal.terminal_id]["released"]
        assert editor.of(session, "plan")[0].entries[0].content == "Look"

        stays = script({"text": "Speaking.", "hold": gate(DIRECTORY, "never")})
        slow = asyncio.ensure_future(agent.prompt(session_id=session, prompt=stays))
        await editor.says(session, "Speaking.")
        await agent.cancel(session_id=session)
        assert (await slow).stop_reason == "cancelled"

        await agent.set_session_mode(session_id=session, mode_id="plan")
        options = await agent.set_config_option(session_id=session, config_id="mode", value="build")
        assert any(option.id == "mode" and option.current_value == "build" for option in options.config_options)

        task = {"description": "Look around", "subagent_type": "general", "prompt": script({"text": "I looked."})[0].text}
        await agent.prompt(session_id=session, prompt=script({"tools": [["task", task]]}, {"text": "It looked."}))
        calls = [update for update in editor.of(session, "tool_call_update") if update.raw_output]
        assert calls[-1].raw_output["metadata"]["sessionId"].startswith("ses_"), calls[-1]

        said = editor.text(session)
        await agent.close_session(session_id=session)
        listed = await agent.list_sessions(cwd=str(DIRECTORY))
        assert [info.session_id for info in listed.sessions] == [session]
        editor.updates.clear()
        await agent.load_session(cwd=str(DIRECTORY), session_id=session, mcp_servers=[])
        assert editor.text(session) == said, editor.text(session)
        forked = await agent.fork_session(session_id=session, cwd=str(DIRECTORY), mcp_servers=[])
        assert forked.session_id != session
        try:
            await agent.load_session(cwd=str(DIRECTORY), session_id="ses_unknown", mcp_servers=[])
        except acp.RequestError as error:
            assert error.code == -32002, error
        else:
            raise AssertionError("an unknown session was loaded")


asyncio.run(asyncio.wait_for(life(), LONGEST))
