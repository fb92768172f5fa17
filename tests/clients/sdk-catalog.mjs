// OpenCode's current SDK: configuration, providers, credentials, agents, commands, tools.

import assert from "node:assert/strict"
import { test } from "node:test"
import { data, directory, refused } from "./common.mjs"
import { client } from "./sdk-client.mjs"

test("the server works, and tells whose API it has", async () => {
  const health = data(await client.global.health())
  assert.equal(health.healthy, true)
  assert.match(health.version, /^\d+\.\d+\.\d+$/)
})

test("the configuration is read and changed", async () => {
  const config = data(await client.config.get())
  assert.equal(config.command.count.description, "Counts")
  assert.equal(config.agent.reviewer.mode, "subagent")
  data(await client.global.config.update({ config: { username: "tester" } }))
  assert.equal(data(await client.global.config.get()).username, "tester")
  assert.equal(data(await client.config.get()).username, "tester")
  data(await client.config.update({ config: { username: "local" } }))
  assert.equal(data(await client.config.get()).username, "local")
  refused(await client.config.update({ config: { permission: 7 } }), 400, "BadRequest")
  assert.equal(data(await client.config.get()).username, "local")
})

test("providers and their models are listed, without their keys", async () => {
  const { providers, default: defaults } = data(await client.config.providers())
  const local = providers.find(({ id }) => id === "local")
  assert.equal(local.name, "Local")
  assert.equal(local.models.small.limit.context, 8192)
  assert.equal(defaults.local, "small")
  const list = data(await client.provider.list())
  assert.ok(list.connected.includes("local"), list.connected.join())
  assert.ok(!JSON.stringify([list, providers]).includes("sk-secret"))
  assert.equal(data(await client.provider.auth()).local[0].type, "api")
  refused(await client.provider.oauth.authorize({ providerID: "local", method: 0 }), 400, "ProviderAuthOauthMissing")
  refused(await client.provider.oauth.callback({ providerID: "local", method: 0, code: "x" }), 400, "ProviderAuthOauthMissing")
})

test("credentials are kept and removed", async () => {
  assert.equal(data(await client.auth.set({ providerID: "local", auth: { type: "api", key: "sk-other" } })), true)
  assert.equal(data(await client.auth.remove({ providerID: "local" })), true)
})

test("agents, commands and skills are listed", async () => {
  const agents = Object.fromEntries(data(await client.app.agents()).map((agent) => [agent.name, agent]))
  assert.equal(agents.build.mode, "primary")
  assert.equal(agents.plan.mode, "primary")
  assert.equal(agents.reviewer.mode, "subagent")
  assert.equal(agents.reviewer.prompt, "Review.")
  const commands = Object.fromEntries(data(await client.command.list()).map((command) => [command.name, command]))
  assert.equal(commands.count.description, "Counts")
  assert.deepEqual(commands.count.hints, ["$ARGUMENTS"])
  assert.ok(commands.init)
  assert.ok(Array.isArray(data(await client.app.skills())))
})

test("tools are listed with their schemas", async () => {
  const ids = data(await client.tool.ids())
  for (const id of ["bash", "read", "edit", "write", "grep", "glob"]) assert.ok(ids.includes(id), ids.join())
  const tools = data(await client.tool.list({ provider: "local", model: "small" }))
  const bash = tools.find(({ id }) => id === "bash")
  assert.deepEqual(bash.parameters.required, ["command"])
})

test("log lines are taken", async () => {
  assert.equal(data(await client.app.log({ service: "test", level: "info", message: "hello" })), true)
  refused(await client.app.log({ service: "test", level: "loud", message: "hello" }), 400, "BadRequest")
})

test("what runs beside the server tells its state", async () => {
  assert.deepEqual(data(await client.lsp.status()), [])
  assert.deepEqual(data(await client.formatter.status()), [])
  assert.equal(data(await client.mcp.status()).tools.status, "disabled")
  assert.deepEqual(data(await client.experimental.resource.list()), {})
  assert.equal(data(await client.experimental.capabilities.get()).backgroundSubagents, true)
  const config = { type: "local", command: ["true"] }
  assert.equal(data(await client.mcp.add({ name: "more", config })).more.status, "failed")
  const name = "nobody"
  for (const call of [client.mcp.connect, client.mcp.disconnect, client.mcp.auth.start, client.mcp.auth.remove, client.mcp.auth.authenticate]) {
    assert.equal(refused(await call({ name }), 404, "McpServerNotFoundError").name, name)
  }
  refused(await client.mcp.auth.callback({ name, code: "x" }), 404, "McpServerNotFoundError")
})

test("hosted services are not offered, and nothing pretends that they are", async () => {
  assert.deepEqual(data(await client.experimental.console.get()), { consoleManagedProviders: [], switchableOrgCount: 0 })
  assert.deepEqual(data(await client.experimental.console.listOrgs()), { orgs: [] })
  refused(await client.experimental.console.switchOrg({ accountID: "a", orgID: "b" }), 400, "BadRequest")
  assert.equal(refused(await client.global.upgrade({ target: "9.9.9" }), 400).success, false)
})

test("the second API is there as far as terminal clients read it", async () => {
  data(await client.v2.health.get())
  const { directory: place } = data(await client.v2.location.get())
  assert.equal(place, directory)
  const names = async (call) => data(await call()).data.map((item) => item.id ?? item.name)
  assert.ok((await names(() => client.v2.agent.list())).includes("build"))
  assert.ok((await names(() => client.v2.provider.list())).includes("local"))
  assert.ok((await names(() => client.v2.model.list())).includes("small"))
  assert.ok((await names(() => client.v2.command.list())).includes("count"))
  for (const call of [client.v2.integration.list, client.v2.reference.list, client.v2.skill.list]) {
    assert.ok(Array.isArray(data(await call()).data))
  }
  assert.equal(data(await client.v2.provider.get({ providerID: "local" })).data.id, "local")
  assert.equal(data(await client.v2.integration.get({ integrationID: "local" })).data.name, "Local")
})
