// The JavaScript SDK of A2A, the last release of line 0.3.

import assert from "node:assert/strict"
import { randomUUID } from "node:crypto"
import {
  ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from "a2a-sdk-03/client"
import { authorized, drain, prompt, rpc, soon, test, transport, until, url, webhook } from "./a2a-common.mjs"

const DOCUMENT = "https://github.com/Intelligent-Internet/opencode-a2a/blob/main/docs/extension-specifications.md"
const EXTENSIONS = [`${DOCUMENT}#shared-interactive-interrupt-v1`, `${DOCUMENT}#shared-stream-hints-v1`]

const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new JsonRpcTransportFactory({ fetchImpl: authorized }), new RestTransportFactory({ fetchImpl: authorized })],
  preferredTransports: [transport],
  cardResolver: new DefaultAgentCardResolver(),
})
const client = await new ClientFactory(options).createFromUrl(url)

/** What goes into a request besides its parameters. */
const extended = (headers = {}) => ({ serviceParameters: { "X-A2A-Extensions": EXTENSIONS.join(","), ...headers } })

/** A message with these texts and ids. */
const message = (text, { taskId, contextId } = {}) => {
  const parts = [{ kind: "text", text }]
  return { kind: "message", messageId: randomUUID(), role: "user", parts, taskId, contextId }
}

const send = (text, ids, configuration = { blocking: true }) => client.sendMessage({ message: message(text, ids), configuration })
const stream = (text, more) => client.sendMessageStream({ message: message(text) }, more)
const to = ({ id, contextId }) => ({ taskId: id, contextId })
const texts = (parts = []) => parts.filter(({ kind }) => kind === "text").map(({ text }) => text).join("")
const isBlock = ({ kind }) => kind === "artifact-update"
const hints = ({ kind, metadata, artifact }) => (kind === "artifact-update" ? artifact.metadata : metadata)?.shared?.stream ?? {}
const numbers = (events) => events.map((event) => hints(event).sequence).filter((number) => number !== undefined)
const said = (events, kind = "text") =>
  events.filter((event) => isBlock(event) && hints(event).block_type === kind).map(({ artifact }) => texts(artifact.parts)).join("")
const asks = ({ kind, status }) => kind === "status-update" && status.state === "input-required"
const fails = (promise) => assert.rejects(promise, Error)

test("the card has both transports", async () => {
  const card = await new DefaultAgentCardResolver().resolve(url)
  assert.equal(card.preferredTransport, "HTTP+JSON")
  const offered = card.additionalInterfaces.map(({ transport }) => transport)
  for (const name of ["HTTP+JSON", "JSONRPC"]) assert.ok(offered.includes(name), offered)
  assert.ok(card.protocolVersion.startsWith("0.3"))
  assert.ok(card.capabilities.streaming && card.capabilities.pushNotifications)
  const whole = await client.getAgentCard()
  assert.ok(whole.capabilities.extensions.length > card.capabilities.extensions.length)
})

test("a message is answered", async () => {
  const { text, answer } = prompt("hello")
  const task = await send(text)
  assert.equal(task.status.state, "completed", JSON.stringify(task))
  assert.equal(task.artifacts.map(({ parts }) => texts(parts)).join(""), answer)
  assert.ok(task.metadata.shared.usage.total_tokens > 0)
  const again = await client.getTask({ id: task.id })
  assert.deepEqual([again.status.state, again.contextId], ["completed", task.contextId])
  assert.equal((await client.getTask({ id: task.id, historyLength: 1 })).history.length, 1)
  const other = await send(text, { contextId: task.contextId })
  assert.equal(other.contextId, task.contextId)
  assert.notEqual(other.id, task.id)
  assert.equal(other.metadata.shared.session.id, task.metadata.shared.session.id)
  await fails(client.getTask({ id: randomUUID() }))
  await fails(send("more", to(task)))
})

test("a message is answered in a stream", async () => {
  const { text, answer } = prompt("steps")
  const events = await drain(stream(text, extended()))
  assert.equal(said(events), answer, JSON.stringify(events))
  assert.ok(said(events, "reasoning"))
  const calls = events.filter(isBlock).flatMap(({ artifact }) => artifact.parts).filter(({ kind }) => kind === "data")
  assert.equal(calls.at(-1).data.status, "completed")
  const last = events.at(-1)
  assert.deepEqual([last.kind, last.final, last.status.state], ["status-update", true, "completed"])
  assert.ok(last.metadata.shared.usage.total_tokens > 0)
  assert.deepEqual(numbers(events), [...new Set(numbers(events))].sort((a, b) => a - b))
})

test("a task is watched without waiting for it", async () => {
  const { text, release } = prompt("held")
  const task = await send(text, {}, { blocking: false })
  assert.ok(["submitted", "working"].includes(task.status.state), JSON.stringify(task))
  const watched = client.resubscribeTask({ id: task.id })
  await soon("event", watched.next())
  release()
  assert.equal((await drain(watched)).at(-1).status.state, "completed")
  const [snapshot, ...more] = await drain(client.resubscribeTask({ id: task.id }))
  assert.deepEqual([snapshot.kind, snapshot.status.state, more], ["task", "completed", []])
})

test("a cut stream goes on", async () => {
  const { text, answer, release } = prompt("held")
  const cut = new AbortController()
  const first = stream(text, { ...extended(), signal: cut.signal })
  const seen = await until(first, isBlock)
  const last = numbers(seen).at(-1)
  cut.abort()
  await fails(drain(first))
  const rest = client.resubscribeTask({ id: seen.at(-1).taskId }, extended({ "Last-Event-ID": String(last) }))
  release()
  const later = await drain(rest)
  assert.equal(numbers(later)[0], last + 1, JSON.stringify(later))
  assert.equal(said(seen) + said(later), answer)
  assert.equal(later.at(-1).status.state, "completed")
})

test("a task is cancelled", async () => {
  const { text } = prompt("held")
  const first = stream(text)
  const { taskId: id } = (await until(first, isBlock)).at(-1)
  const second = client.resubscribeTask({ id })
  await soon("event", second.next())
  assert.equal((await client.cancelTask({ id })).status.state, "canceled")
  for (const open of [first, second]) assert.equal((await drain(open)).at(-1).status.state, "canceled")
  assert.equal((await client.getTask({ id })).status.state, "canceled")
  assert.equal((await client.cancelTask({ id })).status.state, "canceled")
  const done = await send(prompt("hello").text)
  await fails(client.cancelTask({ id: done.id }))
})

const completed = (id) => (task) => task.id === id && task.status.state === "completed"

test("a webhook is called", async () => {
  const { text, release } = prompt("held")
  const hook = await webhook()
  const task = await send(text, {}, { blocking: false })
  const authentication = { schemes: ["Bearer"], credentials: "of-the-webhook" }
  const config = { id: "mine", url: hook.url, token: "of-the-task", authentication }
  const stored = await client.setTaskPushNotificationConfig({ taskId: task.id, pushNotificationConfig: config })
  assert.deepEqual([stored.taskId, stored.pushNotificationConfig.url], [task.id, hook.url])
  const named = { id: task.id, pushNotificationConfigId: "mine" }
  assert.equal((await client.getTaskPushNotificationConfig(named)).pushNotificationConfig.url, hook.url)
  const other = { id: "other", url: `${hook.url}/other` }
  await client.setTaskPushNotificationConfig({ taskId: task.id, pushNotificationConfig: other })
  await client.deleteTaskPushNotificationConfig({ id: task.id, pushNotificationConfigId: "other" })
  const listed = await client.listTaskPushNotificationConfig({ id: task.id })
  assert.deepEqual(listed.map(({ pushNotificationConfig }) => pushNotificationConfig.id), ["mine"])
  release()
  for (const { headers } of await hook.until(completed(task.id))) {
    assert.equal(headers["x-a2a-notification-token"], "of-the-task")
    assert.equal(headers.authorization, "Bearer of-the-webhook")
  }
  hook.close()
})

test("a webhook of a message is called", async () => {
  const hook = await webhook()
  const task = await send(prompt("hello").text, {}, { blocking: true, pushNotificationConfig: { url: hook.url } })
  await hook.until(completed(task.id))
  hook.close()
})

/** A stream that stands at a request for input. */
async function asked(name) {
  const { text, answer } = prompt(name)
  const open = stream(text, extended())
  const seen = await until(open, asks)
  return { answer, open, seen, interrupt: seen.at(-1).metadata.shared.interrupt }
}

test("a permission is given by the extension", async () => {
  const { answer, open, seen, interrupt } = await asked("permission")
  assert.deepEqual([interrupt.type, interrupt.phase, interrupt.details.permission], ["permission", "asked", "bash"])
  const { items } = await rpc("opencode.permissions.list", {}, EXTENSIONS)
  assert.ok(items.some(({ request_id }) => request_id === interrupt.request_id))
  const reply = { request_id: interrupt.request_id, reply: "once" }
  assert.deepEqual(await rpc("a2a.interrupt.permission.reply", reply, EXTENSIONS), { ok: true, request_id: reply.request_id })
  const rest = await drain(open)
  const [resolved] = rest.map(({ metadata }) => metadata?.shared?.interrupt).filter(Boolean)
  assert.deepEqual([resolved.phase, resolved.resolution], ["resolved", "replied"])
  assert.equal(rest.at(-1).status.state, "completed")
  assert.ok(said([...seen, ...rest]).endsWith(answer))
})

test("a question is answered by the extension", async () => {
  const { answer, open, seen, interrupt } = await asked("question")
  assert.deepEqual(interrupt.details.questions[0].options.map(({ label }) => label), ["Red", "Blue"])
  await rpc("a2a.interrupt.question.reply", { request_id: interrupt.request_id, answers: [["Blue"]] }, EXTENSIONS)
  const rest = await drain(open)
  assert.equal(rest.at(-1).status.state, "completed")
  assert.ok(said([...seen, ...rest]).endsWith(answer))
})

test("a permission is given in plain words", async () => {
  const { text, answer } = prompt("permission")
  const task = await send(text)
  assert.equal(task.status.state, "input-required", JSON.stringify(task))
  const words = texts(task.status.message.parts)
  for (const word of ["once", "always", "reject"]) assert.ok(words.includes(word), words)
  assert.equal((await send("perhaps", to(task))).status.state, "input-required")
  const done = await send("once", to(task))
  assert.deepEqual([done.id, done.status.state], [task.id, "completed"], JSON.stringify(done))
  assert.ok(texts(done.artifacts.at(-1).parts).endsWith(answer), JSON.stringify(done))
})

test("a question is answered in plain words", async () => {
  for (const words of ["Blue", "Something between red and blue"]) {
    const { text, answer } = prompt("question")
    const task = await send(text)
    assert.equal(task.status.state, "input-required", JSON.stringify(task))
    for (const label of ["Red", "Blue"]) assert.ok(texts(task.status.message.parts).includes(label))
    const done = await send(words, to(task))
    assert.deepEqual([done.id, done.status.state], [task.id, "completed"], JSON.stringify(done))
    assert.ok(texts(done.artifacts.at(-1).parts).endsWith(answer), JSON.stringify(done))
  }
})
