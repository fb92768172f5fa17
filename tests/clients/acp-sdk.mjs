// The current SDK.

import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk/unstable"
import { Editor, end, life, start } from "./acp-life.mjs"

const { child, output, input } = start()
const editor = new Editor()
const app = client({ name: "life" })
const { fs, session, terminal } = methods.client
const handlers = [
  [session.requestPermission, (params) => editor.permission(params)],
  [fs.readTextFile, (params) => editor.read(params)],
  [fs.writeTextFile, (params) => editor.write(params)],
  [terminal.create, (params) => editor.create(params)],
  [terminal.output, (params) => editor.output(params)],
  [terminal.waitForExit, (params) => editor.exit(params)],
  [terminal.kill, (params) => editor.kill(params)],
  [terminal.release, (params) => editor.release(params)],
]
for (const [method, handle] of handlers) app.onRequest(method, ({ params }) => handle(params))
app.onNotification(session.update, ({ params }) => editor.update(params))
await app.connectWith(ndJsonStream(output, input), async (agent) => {
  const request = (method, params) => agent.request(method, params)
  await life(editor, request, (method, params) => agent.notify(method, params), { subagents: true })
})
await end(child)
