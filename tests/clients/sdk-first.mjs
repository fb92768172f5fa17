// OpenCode's first SDK client, which many programs still use: everything that it can call.

import assert from "node:assert/strict"
import { after, before, test } from "node:test"
import { createOpencodeClient } from "@opencode-ai/sdk"
import { baseUrl, data, directory, Feed, refused, script, texts, watched } from "./common.mjs"

const client = createOpencodeClient({ baseUrl, directory })
const missing = watched(client)
const create = async (body = {}) => data(await client.session.create({ body }))
let feed

before(async () => {
  feed = await Feed.of((options) => client.event.subscribe(options))
})
after(() => feed.close())

test("sessions", async () => {
  const { id } = await create({ title: "First" })
  const path = { id }
  assert.equal(data(await client.session.get({ path })).title, "First")
  assert.ok(data(await client.session.list()).some((session) => session.id === id))
  assert.equal(data(await client.session.update({ path, body: { title: "Second" } })).title, "Second")
  const child = await create({ parentID: id })
  assert.deepEqual(data(await client.session.children({ path })).map(({ id }) => id), [child.id])
  assert.deepEqual(data(await client.session.todo({ path })), [])
  assert.deepEqual(data(await client.session.diff({ path })), [])
  assert.deepEqual(data(await client.session.status()), {})
  assert.equal(data(await client.session.delete({ path })), true)
  refused(await client.session.get({ path }), 404, "NotFoundError")
})

test("turns", async () => {
  const { id } = await create()
  const path = { id }
  const answer = data(await client.session.prompt({ path, body: { parts: script({ text: "Once." }) } }))
  assert.deepEqual(texts(answer), ["Once."])
  assert.deepEqual(data(await client.session.message({ path: { id, messageID: answer.info.id } })), answer)
  data(await client.session.promptAsync({ path, body: { parts: script({ text: "Twice." }) } }), 204)
  await feed.next("session.idle", ({ sessionID }) => sessionID === id)
  await feed.next("session.idle", ({ sessionID }) => sessionID === id)
  assert.deepEqual(data(await client.session.messages({ path })).map(texts).flat().at(-1), "Twice.")
  const shell = data(await client.session.shell({ path, body: { agent: "build", command: "echo three" } }))
  assert.match(shell.parts.find(({ type }) => type === "tool").state.output, /three/)
  const command = { command: "count", arguments: "four" }
  assert.deepEqual(texts(data(await client.session.command({ path, body: command }))), ["Counted four"])
  const init = { providerID: "script", modelID: "file", messageID: "msg_000000000003aaaaaaaaaaaaaa" }
  assert.equal(data(await client.session.init({ path, body: init })), true)
  assert.equal(data(await client.session.abort({ path })), true)
  const fork = data(await client.session.fork({ path, body: {} }))
  assert.equal(data(await client.session.messages({ path: { id: fork.id } })).length, data(await client.session.messages({ path })).length)
})

test("what is not there yet", async () => {
  const path = { id: (await create()).id }
  const model = { providerID: "script", modelID: "file" }
  refused(await client.session.summarize({ path, body: model }), 400, "BadRequest")
  refused(await client.session.revert({ path, body: { messageID: "msg_x" } }), 400, "BadRequest")
  refused(await client.session.unrevert({ path }), 400, "BadRequest")
  refused(await client.session.share({ path }), 400, "BadRequest")
  assert.equal(data(await client.session.unshare({ path })).share, undefined)
})

test("permissions", async () => {
  const { id } = await create({ permission: [{ permission: "bash", pattern: "*", action: "ask" }] })
  const parts = script({ tools: [["bash", { command: "echo asked" }]] }, { text: "Allowed." })
  data(await client.session.promptAsync({ path: { id }, body: { parts } }), 204)
  const asked = await feed.next("permission.asked", ({ sessionID }) => sessionID === id)
  const reply = { path: { id, permissionID: asked.id }, body: { response: "once" } }
  assert.equal(data(await client.postSessionIdPermissionsPermissionId(reply)), true)
  await feed.next("session.idle", ({ sessionID }) => sessionID === id)
  assert.deepEqual(data(await client.session.messages({ path: { id } })).map(texts).flat().at(-1), "Allowed.")
})

test("the project and its files", async () => {
  const project = data(await client.project.current())
  assert.equal(project.worktree, directory)
  assert.deepEqual(data(await client.project.list()).map(({ id }) => id), [project.id])
  assert.equal(data(await client.path.get()).directory, directory)
  assert.equal(data(await client.vcs.get()).branch, "main")
  assert.deepEqual(data(await client.file.list({ query: { path: "src" } })).map(({ path }) => path), ["src/main.rs"])
  assert.match(data(await client.file.read({ query: { path: "src/main.rs" } })).content, /needle/)
  assert.deepEqual(data(await client.file.status()), [])
  assert.equal(data(await client.find.text({ query: { pattern: "needle" } }))[0].path.text, "src/main.rs")
  assert.deepEqual(data(await client.find.files({ query: { query: "main" } })), ["src/main.rs"])
  assert.deepEqual(data(await client.find.symbols({ query: { query: "main" } })), [])
})

test("terminals", async () => {
  const pty = data(await client.pty.create({ body: { command: "/bin/sh" } }))
  const path = { id: pty.id }
  assert.deepEqual(data(await client.pty.list()).map(({ id }) => id), [pty.id])
  assert.equal(data(await client.pty.get({ path })).status, "running")
  assert.equal(data(await client.pty.update({ path, body: { title: "Renamed" } })).title, "Renamed")
  assert.ok((await client.pty.connect({ path })).response.status >= 400, "a plain request is no WebSocket")
  assert.equal(data(await client.pty.remove({ path })), true)
  refused(await client.pty.get({ path }), 404, "PtyNotFoundError")
})

test("the remote control of terminal clients", async () => {
  for (const call of ["openHelp", "openSessions", "openThemes", "openModels", "submitPrompt", "clearPrompt"]) {
    assert.equal(data(await client.tui[call]()), true)
    await feed.next("tui.command.execute")
  }
  data(await client.tui.appendPrompt({ body: { text: "Hello" } }))
  assert.equal((await feed.next("tui.prompt.append")).text, "Hello")
  data(await client.tui.executeCommand({ body: { command: "agent_cycle" } }))
  assert.equal((await feed.next("tui.command.execute")).command, "agent.cycle")
  data(await client.tui.showToast({ body: { message: "Done", variant: "info" } }))
  assert.equal((await feed.next("tui.toast.show")).message, "Done")
  data(await client.tui.publish({ body: { type: "tui.toast.show", properties: { message: "Again", variant: "info" } } }))
  assert.equal((await feed.next("tui.toast.show")).message, "Again")
  assert.equal(data(await client.tui.control.next()).path, "/tui/open-help")
  assert.equal(data(await client.tui.control.response({ body: { done: true } })), true)
})

test("the catalogue", async () => {
  assert.equal(data(await client.config.get()).agent.reviewer.mode, "subagent")
  data(await client.config.update({ body: { username: "first" } }))
  assert.equal(data(await client.config.get()).username, "first")
  assert.equal(data(await client.config.providers()).default.local, "small")
  assert.ok(data(await client.provider.list()).connected.includes("local"))
  data(await client.provider.auth())
  const path = { id: "local" }
  refused(await client.provider.oauth.authorize({ path, body: { method: 0 } }), 400, "ProviderAuthOauthMissing")
  refused(await client.provider.oauth.callback({ path, body: { method: 0, code: "x" } }), 400, "ProviderAuthOauthMissing")
  assert.equal(data(await client.auth.set({ path, body: { type: "api", key: "sk-other" } })), true)
  assert.ok(data(await client.app.agents()).some(({ name }) => name === "build"))
  assert.ok(data(await client.command.list()).some(({ name }) => name === "count"))
  assert.ok(data(await client.tool.ids()).includes("bash"))
  const tools = data(await client.tool.list({ query: { provider: "local", model: "small" } }))
  assert.ok(tools.some(({ id }) => id === "bash"))
  assert.equal(data(await client.app.log({ body: { service: "test", level: "warn", message: "hello" } })), true)
})

test("what runs beside the server", async () => {
  assert.deepEqual(data(await client.lsp.status()), [])
  assert.deepEqual(data(await client.formatter.status()), [])
  assert.equal(data(await client.mcp.status()).tools.status, "disabled")
  const body = { name: "more", config: { type: "local", command: ["true"] } }
  assert.equal(data(await client.mcp.add({ body })).more.status, "failed")
  const path = { name: "nobody" }
  for (const call of [client.mcp.connect, client.mcp.disconnect, client.mcp.auth.start, client.mcp.auth.authenticate, client.auth.remove, client.auth.start, client.auth.authenticate, client.mcp.auth.remove]) {
    refused(await call({ path }), 404, "McpServerNotFoundError")
  }
  for (const auth of [client.auth, client.mcp.auth]) {
    refused(await auth.callback({ path, body: { code: "x" } }), 404, "McpServerNotFoundError")
  }
  assert.equal(data(await client.mcp.auth.set({ path: { id: "local" }, body: { type: "api", key: "sk-third" } })), true)
})

test("the global stream and the end of an instance", async () => {
  const global = await Feed.of((options) => client.global.event(options), (event) => event.payload)
  assert.equal(data(await client.instance.dispose()), true)
  await global.next("server.instance.disposed")
  global.close()
})

test("no method of the SDK was left out", () => {
  assert.deepEqual([...missing], [])
})
