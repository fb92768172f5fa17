"""An editor on the official Python SDK, for the scripts that drive an agent with it."""

import asyncio
import json
import pathlib

import acp
from acp import schema


# How long anything may take, and all of a script.
PATIENCE = 60
LONGEST = 240


def gate(directory, name):
    """A file beside the project that a step of a script can wait for (`after`, `hold`)."""
    return str(pathlib.Path(directory).parent / name)


def script(*steps):
    return [acp.text_block("SCRIPT: " + json.dumps(steps))]


class Editor(acp.Client):
    """Agents use its files and terminals only if they were announced."""

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

    async def until(self, what, fits):
        """Waits until it is so: updates and answers may come in streams of their own."""

        async def come():
            while not fits():
                self.news.clear()
                await self.news.wait()

        try:
            await asyncio.wait_for(come(), PATIENCE)
        except asyncio.TimeoutError:
            raise AssertionError(f"no {what} within {PATIENCE} s; updates: {self.updates}") from None

    async def says(self, session, end):
        await self.until(repr(end), lambda: self.text(session).endswith(end))
