// What the A2A scripts share: the service under test, its prompts, a webhook, and waits that end.
//
// TREFOIL_A2A is a JSON object: `url` and `token` of the service, `transport` ("JSONRPC" or "HTTP+JSON"), `key` (the public JWK
// of what signs its cards), `scratch` (a folder) and `prompts`: name -> {text, answer}. Where a text has `{gate}`, the agent
// waits until that file exists.

import assert from "node:assert/strict"
import { randomUUID } from "node:crypto"
import { writeFileSync } from "node:fs"
import { createServer } from "node:http"
import { join } from "node:path"
import { after, test as plain } from "node:test"

const setup = JSON.parse(process.env.TREFOIL_A2A)
export const { url, transport, key } = setup
export const authorization = `Bearer ${setup.token}`

/** How long anything may take. */
export const PATIENCE = 60_000

/** What a failed test leaves open would keep the program alive. */
after(() => setTimeout(() => process.exit(), 1000).unref())

/** A test that ends. */
export const test = (name, run) => plain(name, { timeout: PATIENCE }, run)

/** What a promise gives; fails with what was awaited if that takes too long. */
export function soon(what, promise) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} within ${PATIENCE} ms`)), PATIENCE)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** A prompt, the answer that it gets, and what lets the agent go on. */
export function prompt(name) {
  const { text, answer } = setup.prompts[name]
  const gate = join(setup.scratch, randomUUID())
  return { text: text.replaceAll("{gate}", gate), answer, release: () => writeFileSync(gate, "") }
}

/** Requests as the user of the token. */
export function authorized(input, init = {}) {
  const headers = new Headers(init.headers)
  headers.set("authorization", authorization)
  return fetch(input, { ...init, headers })
}

/** Calls a method of an extension, for which the SDK has no function. */
export async function rpc(method, params, extensions) {
  const headers = { "content-type": "application/json", "a2a-extensions": extensions.join(",") }
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params })
  const { result, error } = await (await authorized(url, { method: "POST", headers, body })).json()
  assert.equal(error, undefined, `${method}: ${JSON.stringify(error)}`)
  return result
}

/** The rest of a stream. */
export async function drain(stream) {
  const events = []
  for (;;) {
    const { value, done } = await soon("end of the stream", stream.next())
    if (done) return events
    events.push(value)
  }
}

/** The events of a stream up to the first that fits. */
export async function until(stream, fits) {
  const events = []
  for (;;) {
    const { value, done } = await soon("event", stream.next())
    assert.ok(!done, `the stream ended: ${JSON.stringify(events)}`)
    events.push(value)
    if (fits(value)) return events
  }
}

/** Takes notifications at an address of this machine. */
export async function webhook() {
  const received = []
  let arrived = () => {}
  const server = createServer(async (request, response) => {
    let text = ""
    for await (const chunk of request) text += chunk
    // Those of a configuration that is removed again are not what the tests look at.
    if (request.url === "/hook") received.push({ headers: request.headers, body: JSON.parse(text) })
    response.end()
    arrived()
  })
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening))
  /** All notifications up to the first that fits. */
  const until = (fits) => {
    const found = new Promise((resolve) => {
      arrived = () => {
        const at = received.findIndex(({ body }) => fits(body))
        if (at >= 0) resolve(received.slice(0, at + 1))
      }
      arrived()
    })
    return soon("notification", found)
  }
  const close = () => server.close().closeAllConnections()
  return { url: `http://127.0.0.1:${server.address().port}/hook`, until, close }
}
