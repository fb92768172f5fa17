// The JavaScript SDK of A2A, line 1.0.

import assert from "node:assert/strict"
import { randomUUID } from "node:crypto"
import {
  AgentCard, ListTasksRequest, SendMessageRequest, StreamResponse, TaskPushNotificationConfig, TaskState,
  verifyAgentCardSignature,
} from "@a2a-js/sdk"
import {
  ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from "@a2a-js/sdk/client"
import { TaskNotFoundError, UnsupportedOperationError } from "@a2a-js/sdk/errors"
import { authorized, drain, key, prompt, rpc, soon, test, transport, until, url, webhook } from "./a2a-common.mjs"

const EXTENSIONS = ["stream-hints", "interactive-interrupt", "interrupt-recovery", "session-binding"]
  .map((name) => `urn:opencode-a2a:extension:${name}:v1`)
const COMPLETED = TaskState.TASK_STATE_COMPLETED
const CANCELED = TaskState.TASK_STATE_CANCELED
const ASKED = TaskState.TASK_STATE_INPUT_REQUIRED

const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new JsonRpcTransportFactory({ fetchImpl: authorized }), new RestTransportFactory({ fetchImpl: authorized })],
  preferredTransports: [transport],
  cardResolver: new DefaultAgentCardResolver(),
})
const client = await new ClientFactory(options).createFromUrl(url)

/** What goes into a request besides its parameters. */
const extended = (headers = {}) => ({ serviceParameters: { "A2A-Extensions": EXTENSIONS.join(","), ...headers } })

const request = (text, ids = {}, configuration = {}) =>
  SendMessageRequest.fromJSON({ message: { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text }], ...ids }, configuration })
const send = (text, ids, configuration, more) => client.sendMessage(request(text, ids, configuration), more)
const stream = (text, more) => client.sendMessageStream(request(text), more)
const to = ({ id, contextId }) => ({ taskId: id, contextId })
const texts = (parts = []) => parts.map(({ content }) => (content.$case === "text" ? content.value : "")).join("")

const isBlock = ({ payload }) => payload.$case === "artifactUpdate"
const holder = ({ payload }) => (payload.$case === "artifactUpdate" ? payload.value.artifact : payload.value)
const shared = (event) => holder(event).metadata?.shared ?? {}
const blocks = (events) => events.filter(isBlock)
const numbers = (events) =>
  events.filter(({ payload }) => payload.$case !== "task").map((event) => shared(event).stream?.sequence).filter((n) => n !== undefined)
const said = (events, kind = "text") =>
  blocks(events).filter((event) => shared(event).stream.block_type === kind).map((event) => texts(holder(event).parts)).join("")
const state = ({ payload }) => payload.value.status.state
const asks = (event) => event.payload.$case === "statusUpdate" && state(event) === ASKED

test("the card has both transports", async () => {
  const card = await new DefaultAgentCardResolver().resolve(url)
  const offered = card.supportedInterfaces.filter(({ protocolVersion }) => protocolVersion === "1.0")
  assert.deepEqual(offered.map(({ protocolBinding }) => protocolBinding).filter((name) => name !== "GRPC").sort(), ["HTTP+JSON", "JSONRPC"])
  assert.ok(card.capabilities.streaming && card.capabilities.pushNotifications && card.capabilities.extendedAgentCard)
  const whole = await client.getAgentCard()
  assert.ok(whole.capabilities.extensions.length > card.capabilities.extensions.length)
})

test("both cards are signed", async () => {
  const verify = verifyAgentCardSignature(async () => key)
  const card = await new DefaultAgentCardResolver().resolve(url)
  await verify(card)
  // Not what the client has read: the canonical form that the SDK gives to that lacks the security schemes.
  await verify(await (await authorized(`${url}/extendedAgentCard`, { headers: { "A2A-Version": "1.0" } })).json())
  await assert.rejects(verify(AgentCard.fromJSON({ ...AgentCard.toJSON(card), description: "Something else" })), Error)
})

test("a message is answered", async () => {
  const { text, answer } = prompt("hello")
  const task = await send(text, {}, {}, extended())
  assert.equal(task.status.state, COMPLETED, JSON.stringify(task))
  assert.equal(task.artifacts.map(({ parts }) => texts(parts)).join(""), answer)
  assert.ok(task.metadata.shared.usage.total_tokens > 0)
  const again = await client.getTask({ id: task.id })
  assert.deepEqual([again.status.state, again.contextId], [COMPLETED, task.contextId])
  assert.equal(again.metadata?.shared, undefined, "what was not asked for is not told")
  assert.deepEqual((await client.getTask({ id: task.id, historyLength: 0 })).history, [])
  const other = await send(text, { contextId: task.contextId }, {}, extended())
  assert.equal(other.contextId, task.contextId)
  assert.notEqual(other.id, task.id)
  assert.equal(other.metadata.shared.session.id, task.metadata.shared.session.id)
  await assert.rejects(client.getTask({ id: randomUUID() }), TaskNotFoundError)
  await assert.rejects(send("more", to(task)), UnsupportedOperationError)
})

test("a message is answered in a stream", async () => {
  const { text, answer } = prompt("steps")
  const events = await drain(stream(text, extended()))
  assert.equal(events[0].payload.$case, "task")
  assert.equal(said(events), answer, JSON.stringify(events))
  assert.ok(said(events, "reasoning"))
  const calls = blocks(events).flatMap((event) => holder(event).parts).filter(({ content }) => content.$case === "data")
  assert.equal(calls.at(-1).content.value.status, "completed")
  assert.equal(state(events.at(-1)), COMPLETED)
  assert.ok(shared(events.at(-1)).usage.total_tokens > 0)
  assert.deepEqual(numbers(events), [...new Set(numbers(events))].sort((a, b) => a - b))
})

test("a task is watched without waiting for it", async () => {
  const { text, release } = prompt("held")
  const task = await send(text, {}, { returnImmediately: true })
  assert.ok([TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING].includes(task.status.state), JSON.stringify(task))
  const watched = client.resubscribeTask({ id: task.id })
  assert.equal((await soon("event", watched.next())).value.payload.$case, "task")
  release()
  assert.equal(state((await drain(watched)).at(-1)), COMPLETED)
  await assert.rejects(drain(client.resubscribeTask({ id: task.id })), UnsupportedOperationError)
})

test("a cut stream goes on", async () => {
  const { text, answer, release } = prompt("held")
  const cut = new AbortController()
  const first = stream(text, { ...extended(), signal: cut.signal })
  const seen = await until(first, isBlock)
  const last = numbers(seen).at(-1)
  cut.abort()
  await assert.rejects(drain(first), Error)
  const { taskId: id } = seen.at(-1).payload.value
  const rest = client.resubscribeTask({ id }, extended({ "Last-Event-ID": String(last) }))
  release()
  const later = await drain(rest)
  assert.equal(numbers(later)[0], last + 1, JSON.stringify(later))
  assert.equal(said(seen) + said(later), answer)
  assert.equal(state(later.at(-1)), COMPLETED)
})

test("a task is cancelled", async () => {
  const first = stream(prompt("held").text)
  const { taskId: id } = (await until(first, isBlock)).at(-1).payload.value
  const second = client.resubscribeTask({ id })
  await soon("event", second.next())
  assert.equal((await client.cancelTask({ id })).status.state, CANCELED)
  for (const open of [first, second]) assert.equal(state((await drain(open)).at(-1)), CANCELED)
  assert.equal((await client.getTask({ id })).status.state, CANCELED)
  assert.equal((await client.cancelTask({ id })).status.state, CANCELED)
  const done = await send(prompt("hello").text)
  await assert.rejects(client.cancelTask({ id: done.id }), Error)
})

test("tasks are listed in pages", async () => {
  const { text } = prompt("hello")
  const made = [await send(text)]
  const { contextId } = made[0]
  for (let more = 0; more < 2; more++) made.unshift(await send(text, { contextId }))
  const list = (query) => client.listTasks(ListTasksRequest.fromJSON({ contextId, ...query }))
  const first = await list({ pageSize: 2 })
  const second = await list({ pageSize: 2, pageToken: first.nextPageToken })
  assert.deepEqual([...first.tasks, ...second.tasks].map(({ id }) => id), made.map(({ id }) => id), "the newest comes first")
  assert.deepEqual([first.totalSize, second.totalSize, second.nextPageToken], [3, 3, ""])
  assert.ok(first.tasks.every(({ artifacts }) => artifacts.length === 0))
  assert.ok((await list({ includeArtifacts: true })).tasks.every(({ artifacts }) => artifacts.length > 0))
  assert.deepEqual((await list({ status: "TASK_STATE_CANCELED" })).tasks, [])
  await assert.rejects(list({ pageToken: "nonsense" }), Error)
})

const completed = (id) => (body) => {
  const { payload } = StreamResponse.fromJSON(body)
  return (payload.value.id ?? payload.value.taskId) === id && payload.value.status?.state === COMPLETED
}

test("a webhook is called", async () => {
  const { text, release } = prompt("held")
  const hook = await webhook()
  const { id: taskId } = await send(text, {}, { returnImmediately: true })
  const authentication = { scheme: "Bearer", credentials: "of-the-webhook" }
  const config = (more) => TaskPushNotificationConfig.fromJSON({ taskId, ...more })
  const stored = await client.createTaskPushNotificationConfig(config({ id: "mine", url: hook.url, token: "of-the-task", authentication }))
  assert.deepEqual([stored.taskId, stored.url], [taskId, hook.url])
  assert.equal((await client.getTaskPushNotificationConfig({ taskId, id: "mine" })).url, hook.url)
  await client.createTaskPushNotificationConfig(config({ id: "other", url: `${hook.url}/other` }))
  await client.deleteTaskPushNotificationConfig({ taskId, id: "other" })
  assert.deepEqual((await client.listTaskPushNotificationConfig({ taskId })).configs.map(({ id }) => id), ["mine"])
  release()
  for (const { headers } of await hook.until(completed(taskId))) {
    assert.equal(headers["x-a2a-notification-token"], "of-the-task")
    assert.equal(headers.authorization, "Bearer of-the-webhook")
  }
  hook.close()
})

test("a webhook of a message is called", async () => {
  const hook = await webhook()
  const task = await send(prompt("hello").text, {}, { taskPushNotificationConfig: { url: hook.url } })
  await hook.until(completed(task.id))
  hook.close()
})

/** A stream that stands at a request for input. */
async function asked(name) {
  const { text, answer } = prompt(name)
  const open = stream(text, extended())
  const seen = await until(open, asks)
  return { answer, open, seen, interrupt: shared(seen.at(-1)).interrupt }
}

test("a permission is given by the extension", async () => {
  const { answer, open, seen, interrupt } = await asked("permission")
  assert.deepEqual([interrupt.type, interrupt.phase, interrupt.details.permission], ["permission", "asked", "bash"])
  const { items } = await rpc("opencode.permissions.list", {}, EXTENSIONS)
  assert.ok(items.some(({ request_id }) => request_id === interrupt.request_id))
  const reply = { request_id: interrupt.request_id, reply: "once" }
  assert.deepEqual(await rpc("a2a.interrupt.permission.reply", reply, EXTENSIONS), { ok: true, request_id: reply.request_id })
  const rest = await drain(open)
  const [resolved] = rest.map((event) => shared(event).interrupt).filter(Boolean)
  assert.deepEqual([resolved.phase, resolved.resolution], ["resolved", "replied"])
  assert.equal(state(rest.at(-1)), COMPLETED)
  assert.ok(said([...seen, ...rest]).endsWith(answer))
})

test("a question is answered by the extension", async () => {
  const { answer, open, seen, interrupt } = await asked("question")
  assert.deepEqual(interrupt.details.questions[0].options.map(({ label }) => label), ["Red", "Blue"])
  await rpc("a2a.interrupt.question.reply", { request_id: interrupt.request_id, answers: [["Blue"]] }, EXTENSIONS)
  const rest = await drain(open)
  assert.equal(state(rest.at(-1)), COMPLETED)
  assert.ok(said([...seen, ...rest]).endsWith(answer))
})

test("a permission is given in plain words", async () => {
  const { text, answer } = prompt("permission")
  const task = await send(text)
  assert.equal(task.status.state, ASKED, JSON.stringify(task))
  const words = texts(task.status.message.parts)
  for (const word of ["once", "always", "reject"]) assert.ok(words.includes(word), words)
  assert.equal((await send("perhaps", to(task))).status.state, ASKED)
  const done = await send("once", to(task))
  assert.deepEqual([done.id, done.status.state], [task.id, COMPLETED], JSON.stringify(done))
  assert.ok(texts(done.artifacts.at(-1).parts).endsWith(answer), JSON.stringify(done))
})

test("a question is answered in plain words", async () => {
  for (const words of ["Blue", "Something between red and blue"]) {
    const { text, answer } = prompt("question")
    const task = await send(text)
    assert.equal(task.status.state, ASKED, JSON.stringify(task))
    for (const label of ["Red", "Blue"]) assert.ok(texts(task.status.message.parts).includes(label))
    const done = await send(words, to(task))
    assert.deepEqual([done.id, done.status.state], [task.id, COMPLETED], JSON.stringify(done))
    assert.ok(texts(done.artifacts.at(-1).parts).endsWith(answer), JSON.stringify(done))
  }
})
