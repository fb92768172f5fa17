// OpenCode's current SDK: terminals, and the remote control of a terminal client.

import assert from "node:assert/strict"
import { test } from "node:test"
import { data, directory, refused, soon } from "./common.mjs"
import { client, subscribe } from "./sdk-client.mjs"

test("a terminal lives from its creation to its removal", async () => {
  const feed = await subscribe()
  assert.ok(data(await client.pty.shells()).some(({ path }) => path === "/bin/sh"))
  const pty = data(await client.pty.create({ command: "/bin/sh", title: "Shell" }))
  assert.equal(pty.status, "running")
  assert.equal(pty.cwd, directory)
  assert.equal((await feed.next("pty.created")).info.id, pty.id)
  assert.deepEqual(data(await client.pty.list()).map(({ id }) => id), [pty.id])
  assert.equal(data(await client.pty.get({ ptyID: pty.id })).title, "Shell")
  const resized = data(await client.pty.update({ ptyID: pty.id, title: "Renamed", size: { rows: 30, cols: 100 } }))
  assert.equal(resized.title, "Renamed")
  const token = await client.pty.connectToken({ ptyID: pty.id }, { headers: { "x-opencode-ticket": "1" } })
  assert.ok(data(token).ticket)
  refused(await client.pty.connectToken({ ptyID: pty.id }), 403, "PtyForbiddenError")
  assert.ok((await client.pty.connect({ ptyID: pty.id })).response.status >= 400, "a plain request is no WebSocket")
  assert.equal(data(await client.pty.remove({ ptyID: pty.id })), true)
  assert.equal((await feed.next("pty.deleted")).id, pty.id)
  assert.equal(refused(await client.pty.get({ ptyID: pty.id }), 404, "PtyNotFoundError").ptyID, pty.id)
  feed.close()
})

test("terminal clients are told what to do", async () => {
  const feed = await subscribe()
  data(await client.tui.appendPrompt({ text: "Hello" }))
  assert.equal((await feed.next("tui.prompt.append")).text, "Hello")
  for (const [call, command] of [
    [client.tui.openHelp, "help.show"],
    [client.tui.openSessions, "session.list"],
    [client.tui.openThemes, "theme.switch"],
    [client.tui.openModels, "model.list"],
    [client.tui.submitPrompt, "prompt.submit"],
    [client.tui.clearPrompt, "prompt.clear"],
  ]) {
    assert.equal(data(await call()), true)
    assert.equal((await feed.next("tui.command.execute")).command, command)
  }
  data(await client.tui.executeCommand({ command: "session_new" }))
  assert.equal((await feed.next("tui.command.execute")).command, "session.new")
  data(await client.tui.showToast({ message: "Done", variant: "success" }))
  assert.equal((await feed.next("tui.toast.show")).message, "Done")
  data(await client.tui.publish({ body: { type: "tui.prompt.append", properties: { text: "More" } } }))
  assert.equal((await feed.next("tui.prompt.append")).text, "More")
  const { id } = data(await client.session.create({}))
  data(await client.tui.selectSession({ sessionID: id }))
  assert.equal((await feed.next("tui.session.select")).sessionID, id)
  refused(await client.tui.selectSession({ sessionID: "ses_missing" }), 404, "NotFoundError")
  feed.close()
})

test("those who ask instead of listening get the same requests", async () => {
  data(await client.tui.appendPrompt({ text: "Asked for" }))
  let next
  do next = data(await soon("request", client.tui.control.next()))
  while (next.body?.text !== "Asked for")
  assert.equal(next.path, "/tui/append-prompt")
  assert.equal(data(await client.tui.control.response({ body: { done: true } })), true)
})
