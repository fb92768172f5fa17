// The core of Gemini CLI: the tool with which its model calls a remote agent.

import assert from "node:assert/strict"
import { A2AClientManager } from "@google/gemini-cli-core/dist/src/agents/a2a-client-manager.js"
import { RemoteAgentInvocation } from "@google/gemini-cli-core/dist/src/agents/remote-invocation.js"
import { authorization, prompt, test, url } from "./a2a-common.mjs"

const manager = new A2AClientManager({ getProxy: () => undefined })
const context = { config: { getA2AClientManager: () => manager } }

/** A remote agent by its card. Each name has a conversation of its own. */
const agent = (name) => ({
  kind: "remote",
  name,
  agentCardUrl: `${url}/.well-known/agent-card.json`,
  auth: { type: "http", scheme: "Bearer", token: authorization.replace("Bearer ", "") },
})

/** Calls the tool; `watch` gets what it shows meanwhile, and what stops it. */
async function call(definition, query, watch = () => {}) {
  const invocation = new RemoteAgentInvocation(definition, context, { query }, {})
  const stop = new AbortController()
  const updateOutput = (progress) => watch(JSON.stringify(progress), () => stop.abort())
  const { returnDisplay } = await invocation.execute({ abortSignal: stop.signal, updateOutput })
  return returnDisplay
}

test("a message is answered", async () => {
  const { text, answer } = prompt("hello")
  for (const name of ["first", "first", "second"]) {
    const { state, result } = await call(agent(name), text)
    assert.equal(state, "completed", result)
    assert.ok(result.includes(answer), result)
  }
})

/** Asks, stops watching once the question is shown, as a person does to type, and answers in the same conversation. */
async function answered(name, shown, words) {
  const { text, answer } = prompt(name)
  let asked = false
  await call(agent(name), text, (progress, stop) => {
    if (!shown.every((word) => progress.includes(word))) return
    asked = true
    stop()
  })
  assert.ok(asked, "the question is shown")
  const { state, result } = await call(agent(name), words)
  assert.equal(state, "completed", result)
  assert.ok(result.includes(answer), result)
}

test("a permission is given in plain words", () => answered("permission", ["once", "always", "reject"], "once"))
test("a question is answered in plain words", () => answered("question", ["Red", "Blue"], "Blue"))
