// An OpenCode server whose model obeys words of the prompt, as the one did in front of which the A2A exchanges were recorded:
// `fast` (an answer without events), `slow:8` (seconds), `reason`, `tool`, `perm`, `question`, `ooo` (a delta before its part),
// `sesserr`, `http429` (a status), `badjson`. Usage: node a2a-fake-opencode.mjs DIRECTORY

import { randomBytes } from "node:crypto"
import { createServer } from "node:http"

const directory = process.argv[2]
const sessions = new Map() // id -> { info, messages, running }
const waiting = new Map() // request id -> what its answer goes to
const workspaces = new Map()
const worktrees = new Set()
const listeners = new Set()

const id = (prefix) => `${prefix}_${randomBytes(8).toString("hex")}`
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const tell = (type, properties) => {
  const line = `data: ${JSON.stringify({ id: id("evt"), type, properties })}\n\n`
  for (const listener of listeners) listener.write(line)
}

class Refusal extends Error {
  constructor(status, body) {
    super(`${status}`)
    Object.assign(this, { status, body })
  }
}
const missing = (what) => new Refusal(404, { name: "NotFoundError", data: { message: `${what} is not there` } })

function createSession({ title = "New session", parentID } = {}, where = directory) {
  const now = Date.now()
  const info = { id: id("ses"), slug: "calm-river", version: "1.18.19", projectID: "prj_one", directory: where, title, time: { created: now, updated: now } }
  if (parentID) info.parentID = parentID
  sessions.set(info.id, { info, messages: [], running: undefined })
  tell("session.created", { sessionID: info.id, info })
  return info
}

const tokens = { total: 42, input: 30, output: 12, reasoning: 3, cache: { read: 5, write: 2 } }

/** One turn of a session. */
class Turn {
  constructor(session, body) {
    this.session = session
    this.sessionID = session.info.id
    this.given = body.parts ?? []
    this.text = this.given.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n")
    const created = Date.now()
    const model = body.model ?? { providerID: "fake", modelID: "fake-1" }
    this.user = { id: body.messageID ?? id("msg"), sessionID: this.sessionID, role: "user", time: { created }, agent: body.agent ?? "build", model }
    const place = { mode: "build", agent: "build", path: { cwd: directory, root: directory }, cost: 0.0012, tokens }
    this.info = { id: id("msg"), sessionID: this.sessionID, role: "assistant", time: { created }, parentID: this.user.id, ...model, ...place }
    this.parts = []
    this.aborted = new Promise((resolve) => (this.abort = () => resolve("aborted")))
  }

  says(word) {
    return new RegExp(`\\b${word}\\b`).test(this.text)
  }

  part(fields) {
    return { id: id("prt"), sessionID: this.sessionID, messageID: this.info.id, ...fields }
  }

  show(part) {
    tell("message.part.updated", { sessionID: this.sessionID, part, time: Date.now() })
  }

  add(part) {
    const known = this.parts.findIndex((other) => other.id === part.id)
    if (known >= 0) this.parts[known] = part
    else this.parts.push(part)
    this.show(part)
  }

  delta(part, delta) {
    part.text += delta
    tell("message.part.delta", { sessionID: this.sessionID, messageID: this.info.id, partID: part.id, field: "text", delta })
  }

  async run() {
    this.session.messages.push({ info: this.user, parts: this.given.map((part) => ({ ...part, id: id("prt"), sessionID: this.sessionID, messageID: this.user.id })) })
    const refusal = this.text.match(/http(\d{3})/)
    if (refusal) throw new Refusal(Number(refusal[1]), { name: "UpstreamError", data: { message: "no" } })
    if (this.says("badjson")) throw new Refusal(200, undefined)
    if (this.says("fast")) {
      this.parts.push(this.part({ type: "text", text: `echo: ${this.text}` }))
      return this.end()
    }
    this.session.running = this
    tell("session.status", { sessionID: this.sessionID, status: { type: "busy" } })
    await pause(20)
    tell("message.updated", { sessionID: this.sessionID, info: this.user })
    for (const part of this.session.messages.at(-1).parts) this.show(part)
    tell("message.updated", { sessionID: this.sessionID, info: this.info })
    this.add(this.part({ type: "step-start", snapshot: "0000000" }))
    if (this.says("reason")) await this.stream("reasoning", ["thinking ", "hard"])
    if (this.says("tool")) await this.tool()
    if (this.says("perm")) await this.ask("per", "permission", { permission: "bash", patterns: ["rm -rf *"], metadata: {}, always: ["rm *"] })
    if (this.says("question")) {
      const options = [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }]
      await this.ask("que", "question", { questions: [{ question: "Pick a color", header: "Color", options, multiple: false }] })
    }
    const slow = this.text.match(/slow:([\d.]+)/)
    if (slow && (await Promise.race([this.aborted, pause(Number(slow[1]) * 1000)])) === "aborted") {
      return this.fail({ name: "MessageAbortedError", data: { message: "It was stopped." } })
    }
    if (this.says("sesserr")) {
      return this.fail({ name: "APIError", data: { message: "The provider is down.", statusCode: 503, isRetryable: false } })
    }
    const answer = `echo: ${this.text}`
    const size = Math.ceil(answer.length / 4)
    await this.stream("text", answer.match(new RegExp(`[^]{1,${size}}`, "g")))
    this.add(this.part({ type: "step-finish", reason: "stop", snapshot: "0000000", cost: 0.0012, tokens }))
    tell("message.updated", { sessionID: this.sessionID, info: this.info })
    return this.end()
  }

  async stream(type, pieces) {
    const part = this.part({ type, text: "", time: { start: Date.now() } })
    if (this.says("ooo") && type === "text") {
      this.delta({ ...part }, pieces[0])
      this.add({ ...part })
      part.text = pieces.shift()
    } else this.add({ ...part })
    for (const piece of pieces) {
      await pause(2)
      this.delta(part, piece)
    }
    part.time.end = Date.now()
    this.add(part)
  }

  async tool() {
    const part = this.part({ type: "tool", callID: "call_1", tool: "bash" })
    const input = { command: "ls" }
    const time = { start: Date.now() }
    this.add({ ...part, state: { status: "pending", input: {}, raw: "" } })
    await pause(2)
    this.add({ ...part, state: { status: "running", input, title: "List files", time } })
    await pause(2)
    this.add({ ...part, state: { status: "completed", input, output: "a.txt\nb.txt", title: "List files", metadata: {}, time: { ...time, end: Date.now() } } })
  }

  async ask(prefix, kind, details) {
    const request = id(prefix)
    const answer = new Promise((resolve) => waiting.set(request, resolve))
    tell(`${kind}.asked`, { id: request, sessionID: this.sessionID, ...details, tool: { messageID: this.info.id, callID: "call_1" } })
    const given = await Promise.race([answer, this.aborted])
    waiting.delete(request)
    if (given === "aborted") return
    tell(`${kind}.${given.rejected ? "rejected" : "replied"}`, { sessionID: this.sessionID, requestID: request, ...given.fields })
  }

  fail(error) {
    this.info.error = error
    tell("message.updated", { sessionID: this.sessionID, info: this.info })
    tell("session.error", { sessionID: this.sessionID, error })
    return this.end()
  }

  end() {
    Object.assign(this.info.time, { completed: Date.now() })
    if (!this.info.error) this.info.finish = "stop"
    const message = { info: this.info, parts: this.parts }
    this.session.messages.push(message)
    if (this.session.running === this) {
      this.session.running = undefined
      tell("session.status", { sessionID: this.sessionID, status: { type: "idle" } })
      tell("session.idle", { sessionID: this.sessionID })
    }
    return message
  }
}

const media = { text: true, audio: false, image: false, video: false, pdf: false }
const model = (providerID, id, name, { status = "active", context = 128000, output = 8192, reasoning = true, attachment = false } = {}) => ({
  id,
  providerID,
  name,
  api: { id, url: "http://127.0.0.1:9/v1", npm: "@ai-sdk/openai-compatible" },
  status,
  limit: { context, output },
  capabilities: { temperature: true, reasoning, toolcall: true, attachment, input: media, output: media, interleaved: false },
  cost: { input: 0, output: 0, cache: { read: 0, write: 0 } },
  options: {},
  headers: {},
  release_date: "2026-01-01",
})
const small = { status: "beta", context: 32000, output: 4096, reasoning: false, attachment: true }
const one = [model("fake", "fake-1", "Fake One"), model("fake", "fake-2", "Fake Two", small)]
const byId = (models) => Object.fromEntries(models.map((model) => [model.id, model]))
const providers = {
  all: [
    { id: "fake", name: "Fake AI", source: "config", env: [], options: {}, models: byId(one) },
    { id: "other", name: "Other", source: "env", env: ["OTHER_KEY"], options: {}, models: byId([model("other", "o-1", "O1")]) },
  ],
  default: { fake: "fake-1", other: "o-1" },
  connected: ["fake"],
}
const project = { id: "prj_one", worktree: directory, vcs: "git", name: "fake", sandboxes: [], time: { created: 1, updated: 1 } }

/** The id of a message and its time. Some clients send the id alone. */
const cursor = {
  write: ({ id, time }) => Buffer.from(JSON.stringify({ id, time: time.created })).toString("base64url"),
  read: (text) => (text.startsWith("msg_") ? text : JSON.parse(Buffer.from(text, "base64url")).id),
}
const found = (key) => sessions.get(key) ?? (() => { throw missing(key) })()
const infos = () => [...sessions.values()].map(({ info }) => info)
const turn = (key, body) => new Turn(found(key), body).run()
const said = (text) => ({ parts: [{ type: "text", text: `fast ${text}` }] })
const answered = (key, answer) => {
  const resolve = waiting.get(key)
  if (!resolve) throw missing(key)
  resolve(answer)
  return true
}

/** Method and path, in which `*` is an id, and what is answered: a value, or nothing. */
const routes = {
  "GET /session": (_, __, query) => {
    const fits = ({ title, parentID }) => title.includes(query.get("search") ?? "") && !(/true/i.test(query.get("roots")) && parentID)
    return infos().reverse().filter(fits).slice(0, Number(query.get("limit") ?? Infinity))
  },
  "POST /session": (_, body, query) => createSession(body, query.get("directory") ?? undefined),
  "GET /session/status": () => ({
    ...Object.fromEntries([...sessions].filter(([, { running }]) => running).map(([key]) => [key, { type: "busy" }])),
    ses_retry: { type: "retry", attempt: 2, message: "rate limited", next: 1700000000000 },
  }),
  "GET /session/*": ([key]) => found(key).info,
  "GET /session/*/children": ([key]) => infos().filter(({ parentID }) => parentID === found(key).info.id),
  "GET /session/*/todo": ([key]) => found(key) && [
    { id: "t1", content: "write code", status: "in_progress", priority: "high" },
    { id: "t2", content: "test", status: "pending", priority: "medium" },
  ],
  "GET /session/*/diff": ([key]) => found(key) && [{ file: "src/a.rs", before: "a\n", after: "b\n", additions: 1, deletions: 1, status: "modified" }],
  "GET /session/*/message": ([key], _, query, headers) => {
    const { messages } = found(key)
    const end = query.has("before") ? messages.findIndex(({ info }) => info.id === cursor.read(query.get("before"))) : messages.length
    const page = messages.slice(Math.max(0, end - Number(query.get("limit") ?? Infinity)), Math.max(0, end))
    if (page.length > 0 && page[0] !== messages[0]) headers["X-Next-Cursor"] = cursor.write(page[0].info)
    return page
  },
  "GET /session/*/message/*": ([key, message]) => {
    const kept = found(key).messages.find(({ info }) => info.id === message)
    if (!kept) throw missing(message)
    return kept
  },
  "POST /session/*/message": ([key], body) => turn(key, body),
  "POST /session/*/prompt_async": ([key], body) => {
    turn(key, body).catch(() => {})
  },
  "POST /session/*/command": ([key], { command, arguments: words }) => turn(key, said(`command ${command} ${words}`)),
  "POST /session/*/shell": ([key], { command }) => turn(key, said(`shell ${command}`)),
  "POST /session/*/fork": ([key]) => createSession({ title: `${found(key).info.title} (fork)`, parentID: key }),
  "POST /session/*/share": ([key]) => Object.assign(found(key).info, { share: { url: `https://share.example/${key}` } }),
  "DELETE /session/*/share": ([key]) => Object.assign(found(key).info, { share: undefined }),
  "POST /session/*/summarize": ([key]) => !!found(key),
  "POST /session/*/revert": ([key], { messageID, partID }) =>
    Object.assign(found(key).info, { revert: { messageID, partID, snapshot: "0000000", diff: "--- a\n+++ b\n" } }),
  "POST /session/*/unrevert": ([key]) => Object.assign(found(key).info, { revert: undefined }),
  "POST /session/*/abort": ([key]) => {
    found(key).running?.abort()
    return true
  },
  "GET /permission": () => [],
  "GET /question": () => [],
  "POST /permission/*/reply": ([key], { reply }) => answered(key, { fields: { reply } }),
  "POST /question/*/reply": ([key], { answers }) => answered(key, { fields: { answers } }),
  "POST /question/*/reject": ([key]) => answered(key, { rejected: true }),
  "GET /provider": () => providers,
  "GET /project": () => [project],
  "GET /project/current": () => project,
  "GET /experimental/workspace": () => [...workspaces.values()],
  "POST /experimental/workspace": (_, { id: name = id("wrk"), type, branch = null }) => {
    workspaces.set(name, { id: name, type, branch, name: "ws", directory, projectID: "prj_one", extra: null, timeUsed: 1 })
    return workspaces.get(name)
  },
  "DELETE /experimental/workspace/*": ([key]) => {
    const gone = workspaces.get(key)
    if (!workspaces.delete(key)) throw missing(key)
    return gone
  },
  "GET /experimental/worktree": () => [...worktrees],
  "POST /experimental/worktree": (_, { name = "wt" }) => {
    worktrees.add(`${directory}/.wt/${name}`)
    return { name, branch: `opencode/${name}`, directory: `${directory}/.wt/${name}` }
  },
  "DELETE /experimental/worktree": (_, body) => worktrees.delete(body.directory) || true,
  "POST /experimental/worktree/reset": () => true,
}

/** The route of a request, and the ids in its path. A fixed word wins over an id. */
function route(method, path) {
  const words = path.split("/")
  const fits = ([name]) => {
    const [verb, pattern] = name.split(" ")
    const parts = pattern.split("/")
    return verb === method && parts.length === words.length && parts.every((part, n) => part === "*" || part === words[n])
  }
  const [best] = Object.entries(routes).filter(fits).sort(([one], [other]) => one.split("*").length - other.split("*").length)
  if (!best) throw missing(path)
  return { run: best[1], ids: words.filter((_, n) => best[0].split(" ")[1].split("/")[n] === "*") }
}

const server = createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, "http://localhost")
  if (pathname === "/event") {
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" })
    response.write(`data: ${JSON.stringify({ type: "server.connected", properties: {} })}\n\n`)
    listeners.add(response)
    return response.on("close", () => listeners.delete(response))
  }
  const headers = { "content-type": "application/json" }
  try {
    let text = ""
    for await (const chunk of request) text += chunk
    const { run, ids } = route(request.method, pathname)
    const answer = await run(ids, text ? JSON.parse(text) : {}, searchParams, headers)
    response.writeHead(answer === undefined ? 204 : 200, headers).end(answer === undefined ? undefined : JSON.stringify(answer))
  } catch (error) {
    if (error instanceof Refusal && error.body === undefined) {
      return response.writeHead(200, { "content-type": "text/html" }).end("<html></html>")
    }
    response.writeHead(error.status ?? 500, headers).end(JSON.stringify(error.body ?? { name: "UnknownError", data: { message: String(error) } }))
  }
})
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`))
