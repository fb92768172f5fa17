// An older SDK, which knows no subagents.

import { ClientSideConnection, ndJsonStream } from "acp-sdk-029"
import { Editor, end, life, start } from "./acp-life.mjs"

const { child, output, input } = start()
const editor = new Editor()
const handlers = {
  requestPermission: async (params) => editor.permission(params),
  sessionUpdate: async (params) => editor.update(params),
  readTextFile: async (params) => editor.read(params),
  writeTextFile: async (params) => editor.write(params),
  createTerminal: async (params) => editor.create(params),
  terminalOutput: async (params) => editor.output(params),
  waitForTerminalExit: async (params) => editor.exit(params),
  killTerminal: async (params) => editor.kill(params),
  releaseTerminal: async (params) => editor.release(params),
}
const agent = new ClientSideConnection(() => handlers, ndJsonStream(output, input))
const named = {
  initialize: "initialize",
  "session/new": "newSession",
  "session/load": "loadSession",
  "session/list": "listSessions",
  "session/delete": "deleteSession",
  "session/close": "closeSession",
  "session/set_mode": "setSessionMode",
  "session/set_config_option": "setSessionConfigOption",
  "session/prompt": "prompt",
}
const request = (method, params) => agent[named[method]](params)
await life(editor, request, (_, params) => agent.cancel(params), { subagents: false })
await end(child)
