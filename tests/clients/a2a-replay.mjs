// Sends every recorded exchange of opencode-a2a to the service under test, in the recorded order and overlap, and compares the
// replies: status, headers, keys, types, and the words that clients act on. Texts and ids may differ.
//
// TREFOIL_A2A also has `line` ("0.3" or "1.0"), `root` (the workspace), `recordings` (files) and `differences` (the file of accepted
// differences: blocks of a reason and the lines that it explains, where `*` is any text). A line that explains nothing fails, too.
// REPLAY=189_ replays everything but shows all differences of the exchanges whose names begin with that.

import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { soon } from "./a2a-common.mjs"

const { url, line, root, recordings, differences } = JSON.parse(process.env.TREFOIL_A2A)
const shown = process.env.REPLAY

/** The workspace of the recordings. */
const RECORDED_ROOT = "/srv/ws"
/** Streams are numbered by their ends. These begin before another exchange. */
const BEGINS_BEFORE = {
  "0.3": [
    ["060_rpc_stream_slow_canceled", "055_"], ["058_rest_subscribe_running", "055_"], ["059_rpc_subscribe_running", "055_"],
    ["189_int_perm_stream", "181_"], ["193_int_question_stream", "191_"], ["195_int_question_reject_stream", "194_"],
  ],
  "1.0": [
    ["061_rpc_stream_slow_canceled", "059_"], ["059_rpc_subscribe_running", "062_"], ["060_rest_subscribe_running", "062_"],
    ["180_int_perm_stream", "172_"], ["184_int_question_stream", "182_"], ["186_int_question_reject_stream", "185_"],
  ],
}[line]
/** Their clients went on when the task had begun, or had asked. */
const LEFT_OPEN = new Set(BEGINS_BEFORE.map(([name]) => name))
/** Such bodies were not kept. */
const TOO_LARGE = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "none", params: { text: "x".repeat(1 << 20) } })
/** How long a stream may take to end once everything else was answered. */
const LAST_WAIT = 5000

const HEADERS = ["content-type", "a2a-version", "a2a-extensions", "www-authenticate", "cache-control", "vary", "content-encoding", "allow"]
/** Keys whose values clients act on. */
const SIGNIFICANT = new Set([
  "kind", "state", "role", "code", "type", "reason", "block_type", "source", "phase", "resolution", "@type", "domain", "status", "final",
  "append", "permission", "interrupt_type", "ok", "call_id", "tool", "priority", "default", "connected", "jsonrpc", "field", "max",
])
/** Lists that depend on everything before: each item of ours must look like one of theirs. */
const ALIKE = new Set(["tasks", "items"])
/** Documents of ours may say more, in any order. */
const isDocument = (name) => /card|health/.test(name)

const exchanges = recordings
  .flatMap((file) => readFileSync(file, "utf8").trim().split("\n").map((text) => JSON.parse(text)))
  .filter((exchange) => (exchange.line ?? line) === line)
  .sort((one, other) => (one.name < other.name ? -1 : 1))
for (const [name, before] of BEGINS_BEFORE) {
  const [moved] = exchanges.splice(exchanges.findIndex((exchange) => exchange.name === name), 1)
  exchanges.splice(exchanges.findIndex((exchange) => exchange.name.startsWith(before)), 0, moved)
}

const found = new Set()
const report = (name, text) => found.add(`${line} ${name} ${text}`)

// Ids.

const ours = new Map([[RECORDED_ROOT, root]])
const isId = (text) => /^[0-9a-f]{8}-[0-9a-f]{4}-/.test(text) || /^(ses|msg|per|que|prt|wrk)_[0-9a-z]+$/.test(text) || text.startsWith('W/"')

/** Learns our ids from a reply in the place of the recorded one. */
function learn(theirs, own) {
  if (typeof theirs === "string" && typeof own === "string") {
    if (isId(theirs) && !ours.has(theirs)) ours.set(theirs, own)
  } else if (theirs && own && typeof theirs === "object" && typeof own === "object") {
    for (const key of Object.keys(theirs)) learn(theirs[key], own[key])
  }
}

function translated(text) {
  for (const [theirs, own] of ours) text = text.replaceAll(theirs, own)
  return text
}

// Requests.

/** Only the fixtures of documents say who asked. */
function who({ name, headers, line: isExplicit }) {
  if (isExplicit) return headers
  return { authorization: /_bob|other_owner/.test(name) ? "Bearer bob-token" : "Bearer alice-token", ...headers }
}

function send(exchange) {
  const { method, path, body, text, status } = exchange
  const payload = status === 413 ? TOO_LARGE : text ?? (body === undefined ? undefined : JSON.stringify(body))
  const headers = { ...who(exchange) }
  if (payload !== undefined) headers["content-type"] ??= "application/json"
  if (headers["if-none-match"]) headers["if-none-match"] = etags.get(path)
  return soon(`answer to ${exchange.name}`, fetch(url + translated(path), { method, headers, body: payload && translated(payload) }))
}

const etags = new Map()

/** The data of a stream's events, as they come. */
async function* events(response) {
  let rest = ""
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + chunk).replaceAll("\r\n", "\n").split("\n\n")
    rest = blocks.pop()
    for (const block of blocks) {
      const data = block.split("\n").filter((text) => text.startsWith("data:")).map((text) => text.slice(5).trim()).join("\n")
      if (data) yield JSON.parse(data)
    }
  }
}

// Comparison.

const typeOf = (value) => (value === null ? "null" : Array.isArray(value) ? "list" : typeof value)
const short = (value) => JSON.stringify(value)
const last = (place) => place.replaceAll("[]", "").split(".").at(-1)

function compare(place, theirs, own, lenient) {
  if (typeOf(theirs) !== typeOf(own)) return [`${place}: ${typeOf(own)} instead of ${typeOf(theirs)}`]
  if (Array.isArray(theirs)) return compareLists(`${place}[]`, theirs, own, lenient)
  if (typeOf(theirs) === "object") return compareObjects(place, theirs, own, lenient)
  const counts = SIGNIFICANT.has(last(place)) && theirs !== "…" && !lenient
  return counts && theirs !== own ? [`${place}: ${short(own)} instead of ${short(theirs)}`] : []
}

function compareObjects(place, theirs, own, lenient) {
  const lines = []
  for (const key of Object.keys(theirs)) {
    if (key in own) lines.push(...compare(`${place}.${key}`, theirs[key], own[key], lenient))
    else if (theirs[key] !== null) lines.push(`${place}.${key}: missing`)
  }
  if (lenient) return lines
  return [...lines, ...Object.keys(own).filter((key) => !(key in theirs)).map((key) => `${place}.${key}: extra`)]
}

function compareLists(place, theirs, own, lenient) {
  if (lenient) {
    const key = (item) => item?.uri ?? item?.id ?? item?.protocolBinding ?? item?.transport ?? short(item)
    const known = new Map(own.map((item) => [key(item), item]))
    return theirs.flatMap((item) => {
      if (typeOf(item) !== "object" && !known.has(key(item))) return item === "…" ? [] : [`${place}: no ${key(item)}`]
      return known.has(key(item)) ? compare(place, item, known.get(key(item)), true) : [`${place}: no ${key(item)}`]
    })
  }
  if (ALIKE.has(last(place))) return own.flatMap((item) => nearest(place, theirs, item))
  const sizes = theirs.length === own.length ? [] : [`${place}: ${own.length} instead of ${theirs.length}`]
  return [...sizes, ...theirs.slice(0, own.length).flatMap((item, at) => compare(place, item, own[at], false))]
}

/** The differences from the item of theirs that is most like ours. */
function nearest(place, theirs, own) {
  const all = theirs.map((item) => compare(place, item, own, false))
  return all.sort((one, other) => one.length - other.length)[0] ?? []
}

/** What an event is, in a few words. */
function outline(event) {
  const result = event.error ? "error" : event.result ?? event
  if (result === "error") return `error ${event.error.code}`
  const [key, value] = result.kind ? [result.kind, result] : Object.entries(result)[0]
  const shared = (value.artifact ?? value)?.metadata?.shared ?? {}
  const words = [key, value.status?.state, value.final && "final", shared.stream?.block_type]
  return [...words, shared.progress?.type, shared.interrupt?.phase].filter(Boolean).join(" ")
}

function compareStreams(name, theirs, own) {
  const merged = (list) => list.map(outline).filter((text, at, all) => text !== all[at - 1])
  for (const text of difference(merged(theirs), merged(own))) report(name, `events: ${text}`)
  for (const event of own) {
    const alike = theirs.filter((other) => outline(other) === outline(event))
    for (const text of nearest(`event ${outline(event)}`, alike, event)) report(name, text)
  }
}

/** What only one of two lists of lines has, by their longest common subsequence. */
function difference(theirs, own) {
  const common = Array.from({ length: theirs.length + 1 }, () => Array(own.length + 1).fill(0))
  for (let i = theirs.length - 1; i >= 0; i--) {
    for (let j = own.length - 1; j >= 0; j--) {
      common[i][j] = theirs[i] === own[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1])
    }
  }
  const lines = []
  for (let i = 0, j = 0; i < theirs.length || j < own.length; ) {
    if (i < theirs.length && j < own.length && theirs[i] === own[j]) [i, j] = [i + 1, j + 1]
    else if (j === own.length || (i < theirs.length && common[i + 1][j] >= common[i][j + 1])) lines.push(`no "${theirs[i++]}"`)
    else lines.push(`"${own[j++]}" too`)
  }
  return lines
}

// The play.

function compareHeads({ name, status, reply_headers: headers }, response) {
  if (response.status !== status) report(name, `${response.status} instead of ${status}`)
  for (const header of HEADERS) {
    const words = (text) => text?.toLowerCase().replace(/realm="[^"]*"/, "").split(/[,;]\s*/).sort().join(", ")
    const [theirs, own] = [words(headers[header]), words(response.headers.get(header) ?? undefined)]
    // Only these lists were kept of all headers that came.
    if (header in headers && theirs !== own) report(name, `header ${header}: ${own} instead of ${theirs}`)
  }
}

async function exchange(recorded) {
  const { name, path, reply } = recorded
  const response = await send(recorded)
  etags.set(path, response.headers.get("etag") ?? etags.get(path))
  compareHeads(recorded, response)
  if (recorded.events && response.headers.get("content-type")?.startsWith("text/event-stream")) return stream(recorded, response)
  const text = await response.text()
  if (reply === undefined) {
    if (recorded.events) report(name, `no stream but ${text.slice(0, 80)}`)
    return
  }
  let own
  try {
    own = JSON.parse(text)
  } catch {
    return report(name, "the body is not JSON")
  }
  learn(reply, own)
  const whole = recorded.body?.method === "tasks/list" || isDocument(name)
  for (const difference of compare("", reply, own, whole)) report(name, difference)
}

/** Follows a stream; who left it open in the recording goes on once the task is known, and has asked if it does. */
async function stream({ name, events: theirs }, response) {
  const own = []
  let begun
  const hasBegun = new Promise((resolve) => (begun = resolve))
  const enough = () => {
    if (/int_/.test(name)) return own.some((event) => /input-required|INPUT_REQUIRED/.test(JSON.stringify(event)))
    return own.length >= Math.min(2, theirs.length)
  }
  const learned = () => {
    for (const event of own) {
      const like = theirs.find((other) => outline(other) === outline(event))
      if (like) learn(like, event)
    }
  }
  const reading = (async () => {
    for await (const event of events(response)) {
      own.push(event)
      if (enough()) begun()
    }
    begun()
  })().catch((error) => report(name, `the stream broke: ${error.message}`))
  const end = async () => {
    const late = new Promise((resolve) => setTimeout(resolve, LAST_WAIT, "late").unref())
    if ((await Promise.race([reading, late])) === "late") report(name, "the stream does not end")
    learned()
    compareStreams(name, theirs, own)
  }
  if (!LEFT_OPEN.has(name)) return soon(`end of ${name}`, reading).then(end)
  if (!name.includes("subscribe")) await soon(`begin of ${name}`, hasBegun)
  learned()
  open.push(end)
}

const open = []
for (const recorded of exchanges) {
  await exchange(recorded).catch((error) => report(recorded.name, `failed: ${error.message}`))
}
for (const end of open) await end()

// The verdict.

if (shown !== undefined) {
  console.log([...found].filter((text) => text.startsWith(`${line} ${shown}`)).sort().join("\n"))
  process.exit(1)
}
const patterns = []
let hasReason = false
for (const text of readFileSync(differences, "utf8").split("\n").map((text) => text.trim())) {
  if (text === "") hasReason = false
  else if (text.startsWith("#")) hasReason = true
  else {
    assert.ok(hasReason, `there is no reason above ${text}`)
    if (text.startsWith(`${line} `)) patterns.push(text)
  }
}
const matches = (pattern, text) => {
  const escaped = pattern.split("*").map((piece) => piece.replace(/[.+?^${}()|[\]\\]/g, "\\$&"))
  return new RegExp(`^${escaped.join(".*")}$`, "s").test(text)
}
const all = [...found].sort()
const unknown = all.filter((text) => !patterns.some((pattern) => matches(pattern, text)))
const stale = patterns.filter((pattern) => !all.some((text) => matches(pattern, text)))
if (unknown.length > 0) console.log(`these differences are not accepted:\n${unknown.join("\n")}`)
if (stale.length > 0) console.log(`these accepted differences no longer occur:\n${stale.join("\n")}`)
console.log(`${exchanges.length} exchanges, ${all.length} differences`)
process.exit(unknown.length + stale.length > 0 ? 1 : 0)
