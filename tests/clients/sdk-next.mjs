// OpenCode's current SDK: the second API, which Trefoil has as far as terminal clients and web pages read it.

import assert from "node:assert/strict"
import { test } from "node:test"
import { data, refused } from "./common.mjs"
import { client } from "./sdk-client.mjs"

const ids = {
  sessionID: "ses_x", messageID: "msg_x", requestID: "per_x", integrationID: "x", attemptID: "x", credentialID: "x",
  ptyID: "pty_x", id: "x",
}

const { session, integration, credential, permission, question, fs, pty } = client.v2

// Groups of the second API, each with what of it is there, for clients that read.
const groups = [
  [session, ["list", "active", "get"]], [session.permission, ["list"]], [session.question, ["list"]],
  [permission.request, ["list"]], [question.request, ["list"]], [fs, ["list", "find"]], [session.revert, []],
  [integration.connect, []], [integration.attempt, []], [credential, []], [pty, []],
]

test("sessions, requests and files are read by the second API", async () => {
  const made = data(await client.session.create({ title: "Told by both" }))
  const ofSession = { sessionID: made.id }
  assert.equal(data(await session.get(ofSession)).data.title, "Told by both")
  assert.ok(data(await session.list({ limit: 1000 })).data.some(({ id }) => id === made.id))
  assert.equal(data(await session.list({ search: "Told by both", limit: 1 })).data[0].id, made.id)
  assert.equal(data(await session.active()).data[made.id], undefined)
  for (const list of [session.permission.list(ofSession), session.question.list(ofSession)]) {
    assert.deepEqual(data(await list).data, [])
  }
  for (const list of [permission.request.list(), question.request.list(), fs.list()]) {
    const answer = data(await list)
    assert.ok(Array.isArray(answer.data) && answer.location.directory)
  }
  assert.ok(Array.isArray(data(await fs.find({ query: "", limit: "5" })).data))
})

test("the rest of the second API answers that it is not there", async () => {
  for (const [group, there] of groups) {
    const isMissing = (name) => typeof group[name] === "function" && name !== "events" && !there.includes(name)
    for (const name of Object.keys(group).filter(isMissing)) {
      // Where the path is there for reading, the method is not.
      const posts = name === "create" && there.includes("list")
      refused(await group[name](ids), posts ? 405 : 404, posts ? "MethodNotAllowed" : "NotFoundError")
    }
  }
})

test("its event streams too", async () => {
  for (const subscribe of [(options) => session.events(ids, options), (options) => client.v2.event.subscribe(options)]) {
    const errors = []
    const { stream } = await subscribe({ sseMaxRetryAttempts: 1, onSseError: (error) => errors.push(error.message) })
    for await (const event of stream) assert.fail(`an event: ${JSON.stringify(event)}`)
    assert.deepEqual(errors, ["SSE failed: 404 Not Found"])
  }
})
