// OpenCode's SDK starts `opencode` itself; here that is Trefoil, under a link of that name.

import assert from "node:assert/strict"
import { test } from "node:test"
import { createOpencode as createFirst } from "@opencode-ai/sdk"
import { createOpencode, createOpencodeServer } from "@opencode-ai/sdk/v2"
import { data, PATIENCE, script, texts } from "./common.mjs"

const model = { providerID: "script", modelID: "demo" }
const config = { logLevel: "WARN", model: "script/demo", username: "somebody", agent: { poet: { mode: "primary", prompt: "Rhyme." } } }

test("createOpencode starts a server with its configuration, and ends it", async () => {
  const { client, server } = await createOpencode({ port: 0, timeout: PATIENCE, config })
  try {
    assert.deepEqual(data(await client.global.health()).healthy, true)
    assert.equal(data(await client.config.get()).username, "somebody")
    const agents = data(await client.app.agents()).map((agent) => agent.name)
    assert.ok(agents.includes("poet"), agents.join())
    const { id } = data(await client.session.create({ title: "Started" }))
    const answer = data(await client.session.prompt({ sessionID: id, agent: "poet", model, parts: script({ text: "Roses." }) }))
    assert.deepEqual(texts(answer), ["Roses."])
    assert.equal(answer.info.agent, "poet")
  } finally {
    server.close()
  }
  await gone(client)
})

test("the first SDK does the same", async () => {
  const { client, server } = await createFirst({ port: 0, timeout: PATIENCE, config })
  try {
    const { id } = data(await client.session.create({ body: { title: "First" } }))
    const answer = data(await client.session.prompt({ path: { id }, body: { model, parts: script({ text: "Violets." }) } }))
    assert.deepEqual(texts(answer), ["Violets."])
  } finally {
    server.close()
  }
})

test("a start that is called off ends the server", async () => {
  const abort = new AbortController()
  const starting = createOpencodeServer({ port: 0, timeout: PATIENCE, signal: abort.signal })
  abort.abort(new Error("never mind"))
  await assert.rejects(starting, /never mind/)
})

test("a server that cannot start is a failure that says so", async () => {
  const starting = createOpencodeServer({ port: 0, timeout: PATIENCE, hostname: "256.0.0.1" })
  await assert.rejects(starting, /Server exited with code [1-9]/)
})

/** Waits until nobody answers any more. */
async function gone(client) {
  const end = Date.now() + PATIENCE
  while (Date.now() < end) {
    const { response } = await client.global.health().catch(() => ({}))
    if (!response) return
    await new Promise(setImmediate)
  }
  assert.fail("the server still answers")
}
