// OpenCode's current SDK: everything that it can call.

import assert from "node:assert/strict"
import { test } from "node:test"
import { data, Feed, gate, open, script } from "./common.mjs"
import { client, missing } from "./sdk-client.mjs"
import "./sdk-turns.mjs"
import "./sdk-subagents.mjs"
import "./sdk-project.mjs"
import "./sdk-catalog.mjs"
import "./sdk-terminal.mjs"
import "./sdk-next.mjs"

test("an instance that is disposed of begins anew, and its turns go on", async () => {
  const global = await Feed.of((options) => client.global.event(options), (event) => event.payload)
  const { id } = data(await client.session.create({}))
  data(await client.session.promptAsync({ sessionID: id, parts: script({ text: "Still here.", after: gate("disposed") }) }), 204)
  await global.next("session.status", ({ sessionID, status }) => sessionID === id && status.type === "busy")
  assert.equal(data(await client.instance.dispose()), true)
  await global.next("server.instance.disposed")
  open("disposed")
  await global.next("session.idle", ({ sessionID }) => sessionID === id)
  assert.equal(data(await client.global.dispose()), true)
  await global.next("global.disposed")
  global.close()
})

test("no method of the SDK was left out", () => {
  assert.deepEqual([...missing], [])
})
