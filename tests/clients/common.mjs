// What the scripts share: the server under test, answers that must be right, and a feed of events.

import assert from "node:assert/strict"
import { writeFileSync } from "node:fs"
import { dirname, join } from "node:path"

/** Where the server listens, and the directory that it serves. */
export const baseUrl = process.env.TREFOIL_URL
export const directory = process.env.TREFOIL_DIRECTORY

/** How long anything may take. */
export const PATIENCE = 60_000

/** What a promise gives. It fails with what was awaited, and what came instead, if that takes too long. */
export function soon(what, promise, instead = () => "") {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} within ${PATIENCE} ms; ${instead()}`)), PATIENCE)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** A file beside the project that a step of a script can wait for (`after`, `hold`). */
export const gate = (name) => join(dirname(process.env.TREFOIL_DIRECTORY), name)

/** Lets the step go on. */
export const open = (name) => writeFileSync(gate(name), "")

/** A prompt that makes the scripted model play these steps. */
export const script = (...steps) => [{ type: "text", text: `SCRIPT: ${JSON.stringify(steps)}` }]

/** The data of an answer that must be a success. */
export function data({ data, error, response }, status = 200) {
  assert.equal(error, undefined, `${response?.url} ${response?.status}: ${JSON.stringify(error)}`)
  assert.equal(response.status, status, response.url)
  return data
}

/** The error of an answer that must be a refusal, by its status and its `name` or `_tag`. */
export function refused({ data, error, response }, status, name) {
  assert.equal(response?.status, status, `${response?.url}: ${JSON.stringify(error ?? data)}`)
  assert.equal(error._tag ?? error.name, name, `${response.url}: ${JSON.stringify(error)}`)
  return error
}

/** The texts of a message. */
export const texts = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text)

/** Notes which methods of a client are called, so that none is forgotten. */
export function watched(client) {
  const missing = new Set()
  const walk = (object, prefix) => {
    for (const [name, { get, value }] of members(object)) {
      const member = get ? get.call(object) : value
      if (typeof member === "function") {
        missing.add(prefix + name)
        object[name] = (...args) => {
          missing.delete(prefix + name)
          return member.apply(object, args)
        }
      } else walk(member, `${prefix}${name}.`)
    }
  }
  walk(client, "")
  return missing
}

/** Methods of a client's class, and the clients below it: fields of the instance in one SDK, getters in the other. */
function members(object) {
  const all = { ...Object.getOwnPropertyDescriptors(Object.getPrototypeOf(object)), ...Object.getOwnPropertyDescriptors(object) }
  return Object.entries(all).filter(([name]) => name !== "constructor" && !name.startsWith("_") && name !== "client")
}

/** Events as they come, each kept until somebody waited for it. */
export class Feed {
  #events = []
  #waiting = []
  #abort = new AbortController()

  /** From a subscription; an envelope like that of the global stream is taken off by `open`. */
  static async of(subscribe, open = (event) => event) {
    const feed = new Feed()
    const { stream } = await soon("stream of events", subscribe({ signal: feed.#abort.signal }))
    feed.#pump(stream, open)
    await feed.next("server.connected")
    return feed
  }

  async #pump(stream, open) {
    for await (const received of stream) {
      const event = open(received)
      this.#events.push(event)
      this.#waiting = this.#waiting.filter((look) => !look())
    }
  }

  /** The next event of a type that fits; those before it are dropped. */
  next(type, fits = () => true) {
    let look
    const found = new Promise((resolve) => {
      look = () => {
        const at = this.#events.findIndex((event) => event.type === type && fits(event.properties))
        if (at >= 0) resolve(this.#events.splice(0, at + 1).at(-1).properties)
        return at >= 0
      }
      if (!look()) this.#waiting.push(look)
    })
    const seen = () => `seen: ${this.#events.map((event) => event.type).join(", ")}`
    return soon(type, found, seen).finally(() => (this.#waiting = this.#waiting.filter((other) => other !== look)))
  }

  /** How many events of a type are kept. */
  count(type) {
    return this.#events.filter((event) => event.type === type).length
  }

  close() {
    this.#abort.abort()
  }
}
