// The current SDK, with the agent of a server: by HTTP or by WebSocket, as the argument says.

import { client, methods } from "@agentclientprotocol/sdk/unstable"
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client"
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client"
import { Editor, life } from "./acp-life.mjs"

const url = `${process.env.TREFOIL_URL}/acp`
const stream = process.argv[2] === "ws" ? createWebSocketStream(url.replace("http", "ws")) : createHttpStream(url)
const editor = new Editor()
const app = client({ name: "life" })
app.onRequest(methods.client.session.requestPermission, ({ params }) => editor.permission(params))
app.onNotification(methods.client.session.update, ({ params }) => editor.update(params))
await app.connectWith(stream, async (agent) => {
  const request = (method, params) => agent.request(method, params)
  const notify = (method, params) => agent.notify(method, params)
  await life(editor, request, notify, { subagents: true, remote: true })
})
