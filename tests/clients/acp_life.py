"""The whole life of a session with the official Python SDK."""

import asyncio
import json
import os
import pathlib

import acp
from acp import schema

DIRECTORY = pathlib.Path(os.environ["TREFOIL_DIRECTORY"])


def script(*steps):
    return [acp.text_block("SCRIPT: " + json.dumps(steps))]


class Editor(acp.Client):
    def __init__(self):
        self.updates, self.asked, self.terminals, self.news = [], [], {}, asyncio.Event()

    async def session_update(self, session_id, update, **_):
        self.updates.append((session_id, update))
        self.news.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append(tool_call)
        once = next(option for option in options if option.kind == "allow_once")
        outcome = schema.AllowedOutcome(outcome="selected", option_id=once.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id, path, line=None, limit=None, **_):
        return schema.ReadTextFileResponse(content=pathlib.Path(path).read_text())

    async def write_text_file(self, session_id, path, content, **_):
        pathlib.Path(path).write_text(content)
        return schema.WriteTextFileResponse()

    async def create_terminal(self, session_id, command, args=None, env=None, cwd=None, output_byte_limit=None, **_):
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(command, *args, cwd=cwd, stdout=pipe)
        name = f"terminal-{len(self.terminals)}"
        output = asyncio.ensure_future(process.communicate())
        self.terminals[name] = {"process": process, "output": output, "released": False}
        return schema.CreateTerminalResponse(terminal_id=name)

    async def wait_for_terminal_exit(self, session_id, terminal_id, **_):
        await self.terminals[terminal_id]["output"]
        return schema.WaitForTerminalExitResponse(exit_code=self.terminals[terminal_id]["process"].returncode)

    async def terminal_output(self, session_id, terminal_id, **_):
        output = (await self.terminals[terminal_id]["output"])[0].decode()
        return schema.TerminalOutputResponse(output=output, truncated=False)

    async def kill_terminal(self, session_id, terminal_id, **_):
        self.terminals[terminal_id]["process"].kill()

    async def release_terminal(self, session_id, terminal_id, **_):
        self.terminals[terminal_id]["released"] = True

    def of(self, session, kind):
        return [update for id, update in self.updates if id == session and update.session_update == kind]

    def text(self, session):
        return "".join(update.content.text for update in self.of(session, "agent_message_chunk"))


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

        before = len(editor.updates)
        slow = asyncio.ensure_future(
            agent.prompt(session_id=session, prompt=script({"chunks": 1000, "chunk_delay_ms": 20}))
        )
        while not any(update.session_update == "agent_message_chunk" for _, update in editor.updates[before:]):
            editor.news.clear()
            await editor.news.wait()
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


asyncio.run(asyncio.wait_for(life(), 60))
