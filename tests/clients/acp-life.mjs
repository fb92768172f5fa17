// The whole life of a session as an editor lives it. The scripts beside this one bring the SDK.

import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { readFile, writeFile } from "node:fs/promises"
import { Readable, Writable } from "node:stream"
import { gate, script, soon } from "./common.mjs"

const directory = process.env.TREFOIL_DIRECTORY

/** Starts the agent; gives its process and its two streams. */
export function start() {
  const child = spawn(process.env.TREFOIL_BIN, ["acp"], { stdio: ["pipe", "pipe", "inherit"] })
  return { child, output: Writable.toWeb(child.stdin), input: Readable.toWeb(child.stdout) }
}

/** An editor: it notes what it is told, allows what it is asked, and has files and terminals. */
export class Editor {
  updates = []
  asked = []
  terminals = new Map()
  waiting = []

  update(params) {
    this.updates.push(params)
    this.waiting = this.waiting.filter(({ fits, resolve }) => !fits(params) || resolve())
  }

  of(sessionId, kind) {
    return this.updates.filter((p) => p.sessionId === sessionId && p.update.sessionUpdate === kind).map((p) => p.update)
  }

  text(sessionId) {
    return this.of(sessionId, "agent_message_chunk").map((update) => update.content.text).join("")
  }

  /** Waits for an update to come. */
  until(what, fits) {
    const found = new Promise((resolve) => this.waiting.push({ fits, resolve }))
    return soon(what, found, () => `updates: ${JSON.stringify(this.updates)}`)
  }

  /** Waits until what the agent has said ends like this: SDKs hand out updates and answers side by side. */
  async says(sessionId, end) {
    while (!this.text(sessionId).endsWith(end)) await this.until(`"${end}"`, (params) => params.sessionId === sessionId)
  }

  permission(params) {
    this.asked.push(params)
    const once = params.options.find((option) => option.kind === "allow_once")
    return { outcome: { outcome: "selected", optionId: once.optionId } }
  }

  async read({ path }) {
    return { content: await readFile(path, "utf8") }
  }

  async write({ path, content }) {
    await writeFile(path, content)
    return {}
  }

  create({ command, args, cwd }) {
    const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "pipe"] })
    const terminal = { child, output: "" }
    terminal.exit = new Promise((resolve) => child.on("close", (exitCode, signal) => resolve({ exitCode, signal })))
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (terminal.output += data))
    const terminalId = `terminal-${this.terminals.size}`
    this.terminals.set(terminalId, terminal)
    return { terminalId }
  }

  output({ terminalId }) {
    return { output: this.terminals.get(terminalId).output, truncated: false }
  }

  exit({ terminalId }) {
    return this.terminals.get(terminalId).exit
  }

  kill({ terminalId }) {
    this.terminals.get(terminalId).child.kill()
    return {}
  }

  release({ terminalId }) {
    this.terminals.get(terminalId).released = true
    return {}
  }
}

/** What the editor announces. */
export const capabilities = { fs: { readTextFile: true, writeTextFile: true }, terminal: true }

/** Lives through it all. `request` asks the agent, `notify` tells it. A remote agent has files and terminals of its own. */
export async function life(editor, ask, notify, { subagents, remote = false }) {
  const instead = () => `updates: ${JSON.stringify(editor.updates)}`
  const request = (method, params) => soon(`answer to ${method}`, ask(method, params), instead)
  const clientCapabilities = { ...(remote ? {} : capabilities), ...(subagents ? { subagents: {} } : {}) }
  const clientInfo = { name: "life", version: "1" }
  const hello = await request("initialize", { protocolVersion: 1, clientCapabilities, clientInfo })
  assert.equal(hello.protocolVersion, 1)
  assert.equal(hello.agentInfo.name, "trefoil")

  const made = await request("session/new", { cwd: directory, mcpServers: [] })
  const { sessionId } = made
  assert.equal(made.modes.currentModeId, "build")
  assert.ok(made.configOptions.some((option) => option.category === "model"))
  const prompt = (...steps) => request("session/prompt", { sessionId, prompt: script(...steps) })

  // A permission, a diff, a terminal and a plan.
  await writeFile(`${directory}/note.txt`, "alpha\n")
  const todos = [{ content: "Look", status: "in_progress", priority: "high" }]
  const ended = await prompt(
    { reasoning: "Hm. ", text: "Working. ", tools: [["todowrite", { todos }]] },
    { tools: [["edit", { filePath: "note.txt", oldString: "alpha", newString: "omega" }]] },
    { tools: [["bash", { command: "echo from the terminal" }]] },
    { text: "Done." },
  )
  assert.equal(ended.stopReason, "end_turn")
  await editor.says(sessionId, "Done.")
  assert.equal(editor.text(sessionId), "Working. Done.")
  assert.equal(await readFile(`${directory}/note.txt`, "utf8"), "omega\n")
  assert.deepEqual(editor.asked.map((params) => params.toolCall.kind), ["edit", "execute"])
  const content = editor.of(sessionId, "tool_call_update").flatMap((update) => update.content ?? [])
  const diff = content.find((item) => item.type === "diff")
  assert.deepEqual([diff.oldText, diff.newText], ["alpha\n", "omega\n"])
  if (remote) {
    assert.ok(content.some((item) => item.content?.text === "from the terminal\n"))
  } else {
    const { terminalId } = content.find((item) => item.type === "terminal")
    assert.ok(editor.terminals.get(terminalId).released)
  }
  assert.equal(editor.of(sessionId, "plan")[0].entries[0].content, "Look")
  assert.ok(editor.of(sessionId, "usage_update").length > 0)
  assert.ok(editor.of(sessionId, "available_commands_update").length > 0)

  // A cancel, in the middle of the text.
  const slow = prompt({ text: "Speaking.", hold: gate("never") })
  await editor.says(sessionId, "Speaking.")
  await notify("session/cancel", { sessionId })
  assert.equal((await slow).stopReason, "cancelled")

  // Another mode, and another name for it.
  await request("session/set_mode", { sessionId, modeId: "plan" })
  const set = await request("session/set_config_option", { sessionId, configId: "mode", value: "build" })
  assert.equal(set.configOptions.find((option) => option.id === "mode").currentValue, "build")

  // A subagent.
  const task = { description: "Look around", subagent_type: "general", prompt: script({ text: "I looked." })[0].text }
  assert.equal((await prompt({ tools: [["task", task]] }, { text: "It looked." })).stopReason, "end_turn")
  await editor.says(sessionId, "It looked.")
  if (subagents) {
    const child = editor.of(sessionId, "subagent_update")[0].sessionId
    await editor.says(child, "I looked.")
  } else {
    const call = editor.of(sessionId, "tool_call_update").findLast((update) => update.rawInput?.subagent_type)
    assert.match(call.rawOutput.metadata.sessionId, /^ses_/)
  }

  // Closed, listed, and opened again with everything.
  const said = editor.text(sessionId)
  await request("session/close", { sessionId })
  const { sessions } = await request("session/list", { cwd: directory })
  assert.deepEqual(sessions.map((session) => session.sessionId), [sessionId])
  editor.updates.length = 0
  await request("session/load", { sessionId, cwd: directory, mcpServers: [] })
  await editor.says(sessionId, "It looked.")
  assert.equal(editor.text(sessionId), said)
  assert.ok(editor.of(sessionId, "user_message_chunk").length >= 3)
  await request("session/delete", { sessionId })
  assert.deepEqual((await request("session/list", { cwd: directory })).sessions, [])
  await assert.rejects(request("session/load", { sessionId, cwd: directory, mcpServers: [] }), { code: -32002 })
}

/** The agent ends when its editor is gone. */
export async function end(child) {
  const ended = new Promise((resolve) => child.on("exit", resolve))
  child.stdin.end()
  assert.equal(await soon("end of the agent", ended), 0)
}
