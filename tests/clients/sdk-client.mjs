// One client of OpenCode's current SDK and subscriptions of it, and a note of what was not called yet.

import { createOpencodeClient } from "@opencode-ai/sdk/v2"
import { baseUrl, directory, Feed, watched } from "./common.mjs"

export const client = createOpencodeClient({ baseUrl, directory })
export const missing = watched(client)

/** A subscription to the directory. It ends when the instance is disposed of, as a change of the configuration does. */
export const subscribe = () => Feed.of((options) => client.event.subscribe({}, options))
