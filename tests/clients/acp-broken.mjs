// The current SDK over HTTP, with a stream of a session that breaks: what was said meanwhile comes when it is opened again.

import assert from "node:assert/strict"
import { client, methods } from "@agentclientprotocol/sdk/unstable"
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client"
import { Editor } from "./acp-life.mjs"
import { baseUrl, directory, PATIENCE, script } from "./common.mjs"

const url = `${baseUrl}/acp`
let connection
let sever

/** Fetches; the stream of a session is one that can be severed. */
async function breakable(input, init) {
  const response = await fetch(input, init)
  connection ??= response.headers.get("acp-connection-id")
  if ((init.method ?? "GET") !== "GET" || !new Headers(init.headers).has("acp-session-id")) return response
  const reader = response.body.getReader()
  const body = new ReadableStream({
    start(controller) {
      sever = async () => {
        controller.close()
        await reader.cancel()
      }
    },
    async pull(controller) {
      const { value, done } = await reader.read()
      if (!done) controller.enqueue(value)
    },
  })
  return new Response(body, { status: response.status, headers: response.headers })
}

/** Waits until the server has noticed that nobody reads: an event that never was is asked for, which takes nothing away. */
async function unread(sessionId) {
  const headers = {
    accept: "text/event-stream",
    "acp-connection-id": connection,
    "acp-session-id": sessionId,
    "last-event-id": "1000000",
  }
  const end = Date.now() + PATIENCE
  let answer
  do answer = await fetch(url, { headers })
  while (answer.status === 409 && Date.now() < end)
  assert.equal(answer.status, 410)
}

const editor = new Editor()
const app = client({ name: "broken" })
app.onNotification(methods.client.session.update, ({ params }) => editor.update(params))
await app.connectWith(createHttpStream(url, { fetch: breakable }), async (agent) => {
  await agent.request("initialize", { protocolVersion: 1, clientCapabilities: {} })
  const { sessionId } = await agent.request("session/new", { cwd: directory, mcpServers: [] })
  await agent.request("session/prompt", { sessionId, prompt: script({ text: "First. " }) })
  await editor.says(sessionId, "First. ")
  await sever()
  await unread(sessionId)
  // Somebody else has the session do something.
  const answer = await fetch(`${baseUrl}/session/${sessionId}/message?directory=${encodeURIComponent(directory)}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ parts: script({ text: "Meanwhile. " }) }),
  })
  assert.equal(answer.status, 200)
  await answer.json()
  assert.equal(editor.text(sessionId), "First. ")
  await agent.request("session/set_mode", { sessionId, modeId: "build" })
  await editor.says(sessionId, "Meanwhile. ")
  assert.equal(editor.text(sessionId), "First. Meanwhile. ")
})
