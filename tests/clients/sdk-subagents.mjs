// OpenCode's SDK with subagents: several at once, asks from below, the background. What is Trefoil's own is fetched plainly.

import assert from "node:assert/strict"
import { after, before, test } from "node:test"
import { baseUrl, data, directory, Feed, refused, script, texts } from "./common.mjs"
import { client, subscribe } from "./sdk-client.mjs"

let feed
before(async () => (feed = await subscribe()))
after(() => feed.close())

const session = async (body = {}) => data(await client.session.create(body))
const mine = (id) => (properties) => properties.sessionID === id
const bash = (command) => ({ tools: [["bash", { command }]] })

/** A call of the task tool; its subagent asks before it runs commands. */
const task = (description, steps, more = {}) => {
  const [{ text: prompt }] = script(...steps)
  return ["task", { description, prompt, subagent_type: "careful", ...more }]
}

/** An operation of Trefoil's own. */
async function own(method, path, body) {
  const headers = { "x-opencode-directory": encodeURIComponent(directory), "content-type": "application/json" }
  const response = await fetch(`${baseUrl}${path}`, { method, headers, body: body && JSON.stringify(body) })
  const value = await response.json()
  return response.ok ? { data: value, response } : { error: value, response }
}

const tree = async (id) => data(await own("GET", `/session/${id}/tree`)).sessions

/** Starts a session with these tasks and waits until each subagent asks; gives the requests by the command. */
async function family(...tasks) {
  const { id } = await session({ title: "Family" })
  data(await client.session.promptAsync({ sessionID: id, parts: script({ tools: tasks }, { text: "All of it." }) }), 204)
  const asks = {}
  for (const _ of tasks) {
    const asked = await feed.next("permission.asked", ({ metadata }) => metadata.subagent?.rootID === id)
    asks[asked.patterns[0]] = asked
  }
  return [id, asks]
}

const allow = async (sessionID, asked) =>
  assert.equal(data(await client.permission.respond({ sessionID, permissionID: asked.id, response: "once" })), true)

test("subagents work at once, and what they ask is answered on the root", async () => {
  const [id, asks] = await family(
    task("One", [bash("echo one"), { text: "First." }]),
    task("Two", [bash("echo two"), { text: "Second." }]),
  )
  const children = data(await client.session.children({ sessionID: id }))
  assert.deepEqual(children.map(({ title }) => title).sort(), ["One (@careful subagent)", "Two (@careful subagent)"])
  assert.ok(children.every(({ parentID }) => parentID === id))
  const asked = asks["echo one"]
  assert.deepEqual(asked.metadata.subagent.path.map(({ agent }) => agent), ["build", "careful"])
  assert.equal(asked.metadata.subagent.path[1].sessionID, asked.sessionID)
  const [root, ...below] = await tree(id)
  assert.equal(root.state, "running")
  assert.deepEqual(below.map(({ state }) => state), ["asking", "asking"])
  assert.deepEqual(root.asks.map((ask) => ask.id).sort(), Object.values(asks).map((ask) => ask.id).sort())
  const other = await session()
  refused(await client.permission.respond({ sessionID: other.id, permissionID: asked.id, response: "once" }), 404, "PermissionNotFoundError")
  for (const ask of Object.values(asks)) await allow(id, ask)
  await feed.next("session.idle", mine(id))
  const messages = data(await client.session.messages({ sessionID: id }))
  const calls = messages.flatMap(({ parts }) => parts).filter(({ type }) => type === "tool")
  assert.deepEqual(calls.map(({ state }) => /(First|Second)\./.exec(state.output)[0]), ["First.", "Second."])
  assert.ok(calls.every(({ state }) => state.metadata.parentSessionId === id && state.metadata.summary.length === 1))
  assert.deepEqual(texts(messages.at(-1)), ["All of it."])
  const [done] = await tree(id)
  assert.deepEqual([done.state, done.total.toolCalls, done.total.steps, done.own.steps], ["idle", 4, 6, 2])
})

test("a subtree has a stream of its own, and a subagent is steered and cancelled", async () => {
  const [id, asks] = await family(
    task("Steered", [bash("echo left"), { text: "Straight on." }]),
    task("Cancelled", [bash("echo never")]),
  )
  const [steered, cancelled] = [asks["echo left"], asks["echo never"]]
  const stream = new AbortController()
  const response = await fetch(`${baseUrl}/session/${id}/tree/event`, { signal: stream.signal })
  const told = readEvents(response.body)
  assert.equal((await told.next()).value.type, "server.connected")
  const aside = await session({ title: "Aside" })

  const [{ text }] = script({ text: "Turned left." })
  const { messageID } = data(await own("POST", `/session/${steered.sessionID}/steer`, { text }))
  assert.match(messageID, /^msg_/)
  assert.deepEqual(data(await own("POST", `/session/${cancelled.sessionID}/cancel`)), { sessions: [cancelled.sessionID] })
  assert.deepEqual(data(await own("POST", `/session/${cancelled.sessionID}/cancel`)), { sessions: [] })
  await allow(id, steered)
  const seen = []
  for await (const { type, properties } of told) {
    seen.push(properties.sessionID)
    if (type === "session.idle" && properties.sessionID === id) break
  }
  stream.abort()
  assert.deepEqual([...new Set(seen)].sort(), [id, steered.sessionID, cancelled.sessionID].sort())
  assert.ok(!seen.includes(aside.id))
  const states = Object.fromEntries((await tree(id)).map((node) => [node.sessionID, node.state]))
  assert.deepEqual(states, { [id]: "idle", [steered.sessionID]: "idle", [cancelled.sessionID]: "cancelled" })
  const messages = data(await client.session.messages({ sessionID: id }))
  const outputs = messages.flatMap(({ parts }) => parts).filter(({ type }) => type === "tool").map(({ state }) => state.output ?? state.error)
  assert.match(outputs.join("\n"), /Turned left\./)
  assert.deepEqual(texts(messages.at(-1)), ["All of it."])
  const late = await own("POST", `/session/${steered.sessionID}/steer`, { text: "Too late." })
  refused(late, 409, "ConflictError")
})

test("a task is sent to the background and reports when it is done", async () => {
  assert.equal(data(await client.experimental.capabilities.get()).backgroundSubagents, true)
  const quiet = await session()
  assert.equal(data(await client.experimental.session.background({ sessionID: quiet.id })), false)
  const [id, asks] = await family(task("Slow", [bash("echo slow"), { text: "At last." }]))
  const asked = asks["echo slow"]
  assert.equal(data(await client.experimental.session.background({ sessionID: id })), true)
  await feed.next("session.idle", mine(id))
  const [root, child] = await tree(id)
  assert.deepEqual([root.state, child.state, child.background], ["idle", "asking", true])
  await allow(id, asked)
  const report = await feed.next("message.part.updated", ({ part }) => part.sessionID === id && /At last\./.test(part.text))
  assert.match(report.part.text, new RegExp(`<task id="${asked.sessionID}" state="completed">`))
  await feed.next("session.idle", mine(id))
  const last = data(await client.session.messages({ sessionID: id })).at(-1)
  assert.deepEqual(texts(last), ["Hello from the script."])
})

test("a pause holds a session before its next step", async () => {
  const { id } = await session()
  assert.equal(data(await own("POST", `/session/${id}/pause`)), true)
  assert.equal((await feed.next("session.tree", mine(id))).state, "paused")
  data(await client.session.promptAsync({ sessionID: id, parts: script({ text: "At last." }) }), 204)
  await feed.next("session.status", (told) => told.sessionID === id && told.status.type === "busy")
  assert.equal((await tree(id))[0].state, "paused")
  assert.equal(data(await own("POST", `/session/${id}/resume`)), true)
  await feed.next("session.idle", mine(id))
  assert.deepEqual(texts(data(await client.session.messages({ sessionID: id })).at(-1)), ["At last."])
})

test("a budget holds a tree until it is raised", async () => {
  const { id } = await session()
  const set = data(await own("POST", `/session/${id}/budget`, { steps: 1 }))
  assert.deepEqual(set.limit, { steps: 1 })
  data(await client.session.promptAsync({ sessionID: id, parts: script(bash("true"), { text: "Paid." }) }), 204)
  const { blocked } = await feed.next("session.tree", (told) => told.sessionID === id && told.state === "blocked")
  assert.deepEqual([blocked.bound, blocked.sessionID], ["steps", id])
  assert.deepEqual((await tree(id))[0].blocked, blocked)
  data(await own("POST", `/session/${id}/budget`, { steps: 5 }))
  await feed.next("session.idle", mine(id))
  assert.deepEqual(texts(data(await client.session.messages({ sessionID: id })).at(-1)), ["Paid."])
  refused(await own("POST", `/session/${id}/budget`, { steps: 0 }), 400, "BadRequest")
  refused(await own("GET", "/session/ses_missing/tree"), 404, "NotFoundError")
})

/** The events of a stream that no SDK knows. */
async function* readEvents(body) {
  let text = ""
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    text += chunk
    const frames = text.split("\n\n")
    text = frames.pop()
    for (const frame of frames) {
      const line = frame.split("\n").find((line) => line.startsWith("data: "))
      const event = JSON.parse(line.slice("data: ".length))
      if (event.type !== "server.heartbeat") yield event
    }
  }
}
