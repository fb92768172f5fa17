// OpenCode's SDK (its current client): conversations, from the first prompt to permissions and questions.

import assert from "node:assert/strict"
import { readFileSync, writeFileSync } from "node:fs"
import { after, before, test } from "node:test"
import { data, directory, Feed, gate, refused, script, texts } from "./common.mjs"
import { client, subscribe } from "./sdk-client.mjs"

let feed
before(async () => (feed = await subscribe()))
after(() => feed.close())

const session = async (body = {}) => data(await client.session.create(body))
const mine = (id) => (properties) => properties.sessionID === id
const bash = (command) => ({ tools: [["bash", { command }]] })

/** Starts a turn that asks for a permission; gives the request. */
async function asks(id, command) {
  data(await client.session.promptAsync({ sessionID: id, parts: script(bash(command), { text: "The end." }) }), 204)
  const asked = await feed.next("permission.asked", mine(id))
  assert.equal(asked.permission, "bash")
  assert.deepEqual(asked.patterns, [command])
  const pending = data(await client.permission.list()).filter((request) => request.sessionID === id)
  assert.deepEqual(pending, [asked])
  return asked
}

/** The call of a tool in a session. */
async function call(id, tool = "bash") {
  const messages = data(await client.session.messages({ sessionID: id }))
  return messages.flatMap((message) => message.parts).find((part) => part.type === "tool" && part.tool === tool)
}

const careful = { permission: [{ permission: "bash", pattern: "*", action: "ask" }] }

test("a prompt is answered with the message and its parts", async () => {
  const { id } = await session({ title: "Answers" })
  const answer = data(await client.session.prompt({ sessionID: id, parts: script({ reasoning: "Hm.", text: "Forty-two." }) }))
  assert.equal(answer.info.role, "assistant")
  assert.equal(answer.info.sessionID, id)
  assert.equal(answer.info.finish, "stop")
  assert.equal(answer.info.path.cwd, directory)
  assert.ok(answer.info.time.completed >= answer.info.time.created)
  assert.deepEqual(texts(answer), ["Forty-two."])
  assert.deepEqual(answer.parts.map((part) => part.type), ["step-start", "reasoning", "text", "step-finish"])
  const kept = data(await client.session.message({ sessionID: id, messageID: answer.info.id }))
  assert.deepEqual(kept, answer)
})

test("a prompt that is only accepted is told about until its session is idle", async () => {
  const { id } = await session({ title: "Events" })
  data(await client.session.promptAsync({ sessionID: id, parts: script({ text: "One two three four", size: 4 }) }), 204)
  await feed.next("session.status", (status) => status.sessionID === id && status.status.type === "busy")
  let text = ""
  while (text.length < "One two three four".length) text += (await feed.next("message.part.delta", mine(id))).delta
  assert.equal(text, "One two three four")
  const whole = await feed.next("message.part.updated", ({ part }) => part.sessionID === id && part.type === "text")
  assert.equal(whole.part.text, text)
  await feed.next("session.idle", mine(id))
  assert.deepEqual(data(await client.session.status())[id], undefined)
})

test("what a prompt says of itself is kept: its id, agent, system text and tools", async () => {
  const { id } = await session()
  const messageID = "msg_000000000001aaaaaaaaaaaaaa"
  const prompt = { sessionID: id, messageID, agent: "plan", system: "Be brief.", tools: { webfetch: false }, noReply: true }
  const message = data(await client.session.prompt({ ...prompt, parts: [{ type: "text", text: "Later." }] }))
  assert.equal(message.info.role, "user")
  assert.equal(message.info.id, messageID)
  assert.equal(message.info.agent, "plan")
  assert.equal(message.info.system, "Be brief.")
  assert.deepEqual(message.info.tools, { webfetch: false })
  refused(await client.session.prompt({ sessionID: id, agent: "nobody", parts: script({}) }), 400, "BadRequest")
  const model = { providerID: "nobody", modelID: "nothing" }
  refused(await client.session.prompt({ sessionID: id, model, parts: script({}) }), 400, "BadRequest")
})

test("a permission that is given once runs one command", async () => {
  const { id } = await session(careful)
  const asked = await asks(id, "echo once")
  assert.equal(data(await client.permission.reply({ requestID: asked.id, reply: "once" })), true)
  assert.equal((await feed.next("permission.replied", mine(id))).reply, "once")
  await feed.next("session.idle", mine(id))
  const { state } = await call(id)
  assert.equal(state.status, "completed")
  assert.equal(state.output, "once\n")
  const again = await client.permission.reply({ requestID: asked.id, reply: "once" })
  assert.equal(refused(again, 404, "PermissionNotFoundError").requestID, asked.id)
  const second = await asks(id, "echo twice")
  data(await client.permission.reply({ requestID: second.id, reply: "reject" }))
  await feed.next("session.idle", mine(id))
})

test("a permission that is given for good is not asked for again", async () => {
  const { id } = await session(careful)
  const asked = await asks(id, "true always")
  assert.deepEqual(asked.always, ["true *"])
  data(await client.permission.reply({ requestID: asked.id, reply: "always" }))
  await feed.next("session.idle", mine(id))
  const answer = data(await client.session.prompt({ sessionID: id, parts: script(bash("true anew"), { text: "Not asked." }) }))
  assert.deepEqual(texts(answer), ["Not asked."])
  assert.equal(feed.count("permission.asked"), 0)
  // Until it is revoked.
  const saved = async () => data(await client.v2.permission.saved.list()).data.filter((entry) => entry.resource === "true *")
  const [approval] = await saved()
  assert.equal(approval.action, "bash")
  await client.v2.permission.saved.remove({ id: approval.id }, { throwOnError: true })
  assert.deepEqual(await saved(), [])
  const again = await asks(id, "true later")
  data(await client.permission.reply({ requestID: again.id, reply: "reject" }))
  await feed.next("session.idle", mine(id))
})

test("a refused permission ends the turn, a refusal with advice does not", async () => {
  const { id } = await session(careful)
  const asked = await asks(id, "echo never")
  data(await client.permission.respond({ sessionID: id, permissionID: asked.id, response: "reject" }))
  await feed.next("session.idle", mine(id))
  assert.equal((await call(id)).state.status, "error")
  const other = await session(careful)
  const again = await asks(other.id, "echo other")
  data(await client.permission.reply({ requestID: again.id, reply: "reject", message: "Use printf." }))
  await feed.next("session.idle", mine(other.id))
  assert.match((await call(other.id)).state.error, /Use printf\./)
  const messages = data(await client.session.messages({ sessionID: other.id }))
  assert.deepEqual(texts(messages.at(-1)), ["The end."])
})

test("questions are answered or dismissed", async () => {
  const options = [{ label: "Red", description: "Warm" }, { label: "Blue", description: "Cold" }]
  const question = { question: "Which colour?", header: "Colour", options }
  const parts = script({ tools: [["question", { questions: [question] }]] }, { text: "Painted." })
  const { id } = await session()
  data(await client.session.promptAsync({ sessionID: id, parts }), 204)
  const asked = await feed.next("question.asked", mine(id))
  assert.equal(asked.questions[0].question, "Which colour?")
  assert.deepEqual(asked.questions[0].options, options)
  assert.deepEqual(data(await client.question.list()), [asked])
  assert.equal(data(await client.question.reply({ requestID: asked.id, answers: [["Blue"]] })), true)
  assert.deepEqual((await feed.next("question.replied", mine(id))).answers, [["Blue"]])
  await feed.next("session.idle", mine(id))
  const { state } = await call(id, "question")
  assert.deepEqual(state.metadata.answers, [["Blue"]])
  assert.match(state.output, /"Which colour\?"="Blue"/)
  refused(await client.question.reject({ requestID: asked.id }), 404, "QuestionNotFoundError")

  data(await client.session.promptAsync({ sessionID: id, parts }), 204)
  const second = await feed.next("question.asked", mine(id))
  assert.equal(data(await client.question.reject({ requestID: second.id })), true)
  await feed.next("question.rejected", mine(id))
  await feed.next("session.idle", mine(id))
})

test("a turn that is stopped says so", async () => {
  const { id } = await session()
  data(await client.session.promptAsync({ sessionID: id, parts: script({ text: "Slow", after: gate("never") }) }), 204)
  await feed.next("session.status", (status) => status.sessionID === id && status.status.type === "busy")
  assert.deepEqual(data(await client.session.status())[id], { type: "busy" })
  const busy = await client.session.shell({ sessionID: id, agent: "build", command: "true" })
  assert.equal(refused(busy, 409, "SessionBusyError").sessionID, id)
  assert.equal(data(await client.session.abort({ sessionID: id })), true)
  const stopped = await feed.next("session.error", mine(id))
  assert.equal(stopped.error.name, "MessageAbortedError")
  await feed.next("session.idle", mine(id))
})

test("a model that fails is an answer with an error, and a model that recovers is tried again", async () => {
  const { id } = await session()
  const failed = data(await client.session.prompt({ sessionID: id, parts: script({ http_error: 400, error_body: { error: { message: "No." } } }) }))
  assert.equal(failed.info.error.name, "APIError")
  assert.equal(failed.info.error.data.statusCode, 400)
  assert.equal(failed.info.error.data.isRetryable, false)
  const late = script({ http_error: 503, fail_times: 1, retry_after_ms: 1, text: "At last." })
  data(await client.session.promptAsync({ sessionID: id, parts: late }), 204)
  const status = await feed.next("session.status", (status) => status.sessionID === id && status.status.type === "retry")
  assert.equal(status.status.attempt, 1)
  await feed.next("session.idle", mine(id))
  assert.ok(texts(data(await client.session.messages({ sessionID: id })).at(-1)).includes("At last."))
})

test("files are read, written and edited, and attached to prompts", async () => {
  writeFileSync(`${directory}/poem.txt`, "roses are red\nviolets are blue\n")
  const { id } = await session()
  const steps = script(
    { tools: [["read", { filePath: `${directory}/poem.txt` }]] },
    { tools: [["edit", { filePath: `${directory}/poem.txt`, oldString: "blue", newString: "violet" }]] },
    { tools: [["write", { filePath: `${directory}/new.txt`, content: "fresh\n" }]] },
    { text: "Done." },
  )
  data(await client.session.promptAsync({ sessionID: id, parts: steps }), 204)
  assert.equal((await feed.next("file.edited")).file, `${directory}/poem.txt`)
  await feed.next("session.idle", mine(id))
  assert.equal(readFileSync(`${directory}/poem.txt`, "utf8"), "roses are red\nviolets are violet\n")
  assert.equal(readFileSync(`${directory}/new.txt`, "utf8"), "fresh\n")
  const { state } = await call(id, "edit")
  assert.equal(state.metadata.filediff.additions, 1)
  const file = { type: "file", mime: "text/plain", filename: "poem.txt", url: `file://${directory}/poem.txt` }
  const prompt = { sessionID: id, noReply: true, parts: [{ type: "text", text: "See this." }, file] }
  const sent = data(await client.session.prompt(prompt))
  assert.ok(texts(sent).some((text) => text.includes("violets are violet")), "the file's text goes with it")
})

test("todo lists are kept and told", async () => {
  const { id } = await session()
  const todos = [{ content: "Sweep", status: "in_progress", priority: "high" }, { content: "Mop", status: "pending", priority: "low" }]
  data(await client.session.promptAsync({ sessionID: id, parts: script({ tools: [["todowrite", { todos }]] }, { text: "Noted." }) }), 204)
  assert.deepEqual((await feed.next("todo.updated", mine(id))).todos, todos)
  await feed.next("session.idle", mine(id))
  assert.deepEqual(data(await client.session.todo({ sessionID: id })), todos)
})

test("shell lines run as the human's", async () => {
  const { id } = await session()
  const { info, parts } = data(await client.session.shell({ sessionID: id, agent: "build", command: "echo by hand" }))
  assert.equal(info.role, "assistant")
  const part = parts.find((part) => part.type === "tool")
  assert.equal(part.tool, "bash")
  assert.equal(part.state.status, "completed")
  assert.match(part.state.output, /by hand/)
})

test("a conversation is paged, forked, cut and ended", async () => {
  const { id } = await session({ title: "Long" })
  for (const word of ["one", "two", "three"]) data(await client.session.prompt({ sessionID: id, parts: script({ text: word }) }))
  const all = data(await client.session.messages({ sessionID: id }))
  assert.equal(all.length, 6)
  const page = await client.session.messages({ sessionID: id, limit: 2 })
  assert.deepEqual(data(page), all.slice(4))
  const before = page.response.headers.get("x-next-cursor")
  assert.deepEqual(data(await client.session.messages({ sessionID: id, limit: 2, before })), all.slice(2, 4))
  const fork = data(await client.session.fork({ sessionID: id, messageID: all[2].info.id }))
  assert.equal(fork.title, "Long (fork #1)")
  assert.deepEqual(data(await client.session.messages({ sessionID: fork.id })).map(texts).flat().at(-1), "one")

  const last = all[5]
  const part = last.parts.find((part) => part.type === "text")
  const where = { sessionID: id, messageID: last.info.id, partID: part.id }
  const changed = data(await client.part.update({ ...where, part: { ...part, text: "drei" } }))
  assert.equal(changed.text, "drei")
  assert.deepEqual(texts(data(await client.session.message({ sessionID: id, messageID: last.info.id }))), ["drei"])
  assert.equal(data(await client.part.delete(where)), true)
  assert.equal((await feed.next("message.part.removed", mine(id))).partID, part.id)
  assert.equal(data(await client.session.deleteMessage({ sessionID: id, messageID: last.info.id })), true)
  assert.equal((await feed.next("message.removed", mine(id))).messageID, last.info.id)
  assert.equal(data(await client.session.messages({ sessionID: id })).length, 5)
  assert.equal(data(await client.session.delete({ sessionID: id })), true)
  assert.equal((await feed.next("session.deleted", mine(id))).info.id, id)
  refused(await client.session.get({ sessionID: id }), 404, "NotFoundError")
})

test("an error of the server is an exception for those who want one", async () => {
  const missing = client.session.get({ sessionID: "ses_missing" }, { throwOnError: true })
  await assert.rejects(missing, (error) => error.cause.status === 404 && /ses_missing/.test(error.message))
})

test("the global stream tells of every directory", async () => {
  const global = await Feed.of((options) => client.global.event(options), (event) => event.payload)
  const { id } = await session({ title: "Elsewhere" })
  assert.equal((await global.next("session.created", ({ info }) => info.id === id)).info.title, "Elsewhere")
  global.close()
})

test("commands are prompts with a name", async () => {
  const { id } = await session()
  const answer = data(await client.session.command({ sessionID: id, command: "count", arguments: "to three" }))
  assert.deepEqual(texts(answer), ["Counted to three"])
  assert.equal((await feed.next("command.executed", mine(id))).name, "count")
  refused(await client.session.command({ sessionID: id, command: "nothing", arguments: "" }), 400, "BadRequest")
  const messageID = "msg_000000000002aaaaaaaaaaaaaa"
  const init = { sessionID: id, providerID: "script", modelID: "file", messageID }
  assert.equal(data(await client.session.init(init)), true)
})

test("sessions are listed, found, renamed and archived, with their children", async () => {
  const parent = await session({ title: "Family tree", metadata: { colour: "green" } })
  assert.equal(parent.directory, directory)
  assert.deepEqual(parent.metadata, { colour: "green" })
  const child = await session({ parentID: parent.id })
  assert.deepEqual(data(await client.session.children({ sessionID: parent.id })).map(({ id }) => id), [child.id])
  const found = data(await client.session.list({ search: "Family tree", roots: true }))
  assert.deepEqual(found.map(({ id }) => id), [parent.id])
  assert.equal(data(await client.session.list({ limit: 1 })).length, 1)
  const renamed = data(await client.session.update({ sessionID: parent.id, title: "Old oak", time: { archived: 5 } }))
  assert.equal(renamed.title, "Old oak")
  assert.equal(renamed.time.archived, 5)
  assert.equal((await feed.next("session.updated", ({ info }) => info.title === "Old oak")).info.id, parent.id)
  assert.deepEqual(data(await client.session.get({ sessionID: parent.id })), renamed)
})

test("what is not there yet says so: undo, summaries, sharing", async () => {
  const { id: sessionID } = await session()
  const { info } = data(await client.session.prompt({ sessionID, parts: script({ text: "Something." }) }))
  assert.deepEqual(data(await client.session.diff({ sessionID })), [])
  refused(await client.session.revert({ sessionID, messageID: info.id }), 400, "BadRequest")
  refused(await client.session.unrevert({ sessionID }), 400, "BadRequest")
  refused(await client.session.summarize({ sessionID, providerID: "script", modelID: "file" }), 400, "BadRequest")
  refused(await client.session.share({ sessionID }), 400, "BadRequest")
  assert.equal(data(await client.session.unshare({ sessionID })).share, undefined)
})
