// OpenCode's current SDK: the second API, which Trefoil does not have but for what terminal clients read.

import assert from "node:assert/strict"
import { test } from "node:test"
import { refused } from "./common.mjs"
import { client } from "./sdk-client.mjs"

const ids = {
  sessionID: "ses_x", messageID: "msg_x", requestID: "per_x", integrationID: "x", attemptID: "x", credentialID: "x",
  ptyID: "pty_x", id: "x",
}

const { session, integration, credential, permission, question, fs, pty } = client.v2

test("the rest of the second API answers that it is not there", async () => {
  for (const group of [
    session, session.revert, session.permission, session.question, integration.connect, integration.attempt, credential,
    permission.request, question.request, fs, pty,
  ]) {
    for (const name of Object.keys(group).filter((name) => typeof group[name] === "function" && name !== "events")) {
      refused(await group[name](ids), 404, "NotFoundError")
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
