// OpenCode's current SDK: files, search, git, projects, worktrees.

import assert from "node:assert/strict"
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { test } from "node:test"
import { data, directory, Feed, refused } from "./common.mjs"
import { client } from "./sdk-client.mjs"

test("files are listed and read, inside the project only", async () => {
  const names = data(await client.file.list({ path: "." })).map(({ name, type }) => `${type} ${name}`)
  assert.ok(names.includes("directory src") && names.includes("file README.md"), names.join())
  const [main] = data(await client.file.list({ path: "src" }))
  assert.deepEqual(main, { name: "main.rs", path: "src/main.rs", absolute: `${directory}/src/main.rs`, type: "file", ignored: false })
  const content = data(await client.file.read({ path: "src/main.rs" }))
  assert.equal(content.type, "text")
  assert.match(content.content, /needle/)
  refused(await client.file.read({ path: "../../../../etc/passwd" }), 400, "BadRequest")
})

test("text, files and symbols are found", async () => {
  const [match] = data(await client.find.text({ pattern: "need.e" }))
  assert.equal(match.path.text, "src/main.rs")
  assert.equal(match.line_number, 2)
  assert.deepEqual(match.submatches, [{ match: { text: "needle" }, start: 14, end: 20 }])
  assert.deepEqual(data(await client.find.files({ query: "main", type: "file" })), ["src/main.rs"])
  assert.deepEqual(data(await client.find.symbols({ query: "main" })), [])
  refused(await client.find.text({ pattern: "(" }), 400, "BadRequest")
})

test("git tells the branch, what changed, and takes patches", async () => {
  assert.equal(data(await client.vcs.get()).branch, "main")
  writeFileSync(`${directory}/README.md`, "# A project\n\nWith a second line.\n")
  const status = data(await client.file.status()).find(({ path }) => path === "README.md")
  assert.deepEqual(status, { path: "README.md", added: 2, removed: 0, status: "modified" })
  const [change] = data(await client.vcs.status()).filter(({ file }) => file === "README.md")
  assert.equal(change.status, "modified")
  const [diff] = data(await client.vcs.diff({ mode: "git" })).filter(({ file }) => file === "README.md")
  assert.equal(diff.additions, 2)
  assert.match(diff.patch, /\+With a second line\./)
  assert.match(data(await client.vcs.diff2.raw()), /\+With a second line\./)
  refused(await client.vcs.diff({ mode: "sideways" }), 400, "BadRequest")
  const patch = "--- a/README.md\n+++ b/README.md\n@@ -1,3 +1,3 @@\n-# A project\n+# The project\n \n With a second line.\n"
  assert.deepEqual(data(await client.vcs.apply({ patch })), { applied: true })
  assert.match(readFileSync(`${directory}/README.md`, "utf8"), /^# The project/)
  refused(await client.vcs.apply({ patch: "no patch" }), 400, "VcsApplyError")
})

test("projects are known by their first commit", async () => {
  const current = data(await client.project.current())
  assert.match(current.id, /^[0-9a-f]{40}$/)
  assert.equal(current.worktree, directory)
  assert.equal(current.vcs, "git")
  assert.deepEqual(data(await client.project.list()).map(({ id }) => id), [current.id])
  const named = data(await client.project.update({ projectID: current.id, name: "Trial" }))
  assert.equal(named.name, "Trial")
  assert.equal(data(await client.project.current()).name, "Trial")
  assert.equal(refused(await client.project.update({ projectID: "nobody", name: "x" }), 404, "ProjectNotFoundError").projectID, "nobody")
  assert.deepEqual(data(await client.project.directories({ projectID: current.id })).map(({ directory }) => directory), [directory])
  assert.equal(data(await client.project.initGit()).id, current.id)
  const paths = data(await client.path.get())
  assert.equal(paths.directory, directory)
  assert.equal(paths.worktree, directory)
})

test("worktrees are made, reset and removed", async () => {
  assert.deepEqual(data(await client.worktree.list()), [])
  const global = await Feed.of((options) => client.global.event(options), (event) => event.payload)
  const made = data(await client.worktree.create({ worktreeCreateInput: { name: "side" } }))
  assert.equal(made.name, "side")
  await global.next("worktree.ready", ({ name }) => name === "side")
  global.close()
  assert.ok(existsSync(`${made.directory}/src/main.rs`))
  assert.deepEqual(data(await client.worktree.list()), [made.directory])
  rmSync(`${made.directory}/src/main.rs`)
  assert.equal(data(await client.worktree.reset({ worktreeResetInput: { directory: made.directory } })), true)
  assert.ok(existsSync(`${made.directory}/src/main.rs`))
  assert.equal(data(await client.worktree.remove({ worktreeRemoveInput: { directory: made.directory } })), true)
  assert.ok(!existsSync(made.directory))
})

test("sessions of all projects are listed", async () => {
  const { id } = data(await client.session.create({ title: "Far and wide" }))
  const found = data(await client.experimental.session.list({ search: "Far and wide" }))
  assert.deepEqual(found.map((session) => session.id), [id])
  assert.equal(found[0].project.worktree, directory)
})

test("workspaces are working trees that sessions move to", async () => {
  const { experimental } = client
  const { id: sessionID } = data(await client.session.create({}))
  assert.deepEqual(data(await experimental.workspace.adapter.list()).map(({ type }) => type), ["worktree"])
  const made = data(await experimental.workspace.create({ type: "worktree", branch: "elsewhere" }))
  assert.deepEqual(data(await experimental.workspace.list()).map(({ id }) => id), [made.id])
  assert.deepEqual(data(await experimental.workspace.status()), [{ workspaceID: made.id, status: "connected" }])
  data(await experimental.workspace.syncList(), 204)
  data(await experimental.workspace.warp({ id: made.id, sessionID }), 204)
  assert.equal(data(await client.session.get({ sessionID })).directory, made.directory)
  data(await experimental.controlPlane.moveSession({ sessionID, destination: { directory } }), 204)
  assert.equal(data(await client.session.get({ sessionID })).directory, directory)
  assert.equal(data(await experimental.workspace.remove({ id: made.id })).id, made.id)
  assert.ok(!existsSync(made.directory))
  refused(await experimental.workspace.warp({ id: made.id, sessionID }), 404, "NotFoundError")
})

test("a project is copied under a name of its own", async () => {
  const { id: projectID } = data(await client.project.current())
  const { name } = data(await client.experimental.projectCopy.generateName({ projectID, context: "fix the bug" }))
  assert.equal(name, "fix-the-bug")
  const folder = `${directory}/../copies`
  const copy = data(await client.v2.projectCopy.create({ projectID, strategy: "git_worktree", directory: folder, name }))
  assert.ok(existsSync(`${copy.directory}/src/main.rs`))
  data(await client.v2.projectCopy.refresh({ projectID }), 204)
  data(await client.v2.projectCopy.remove({ projectID, directory: copy.directory, force: true }), 204)
  assert.ok(!existsSync(copy.directory))
})

test("the history of a session is there, its replication is not", async () => {
  const { id: sessionID } = data(await client.session.create({}))
  const history = data(await client.sync.history.list({ body: { [sessionID]: 0 } }))
  const own = history.filter((event) => event.aggregate_id === sessionID)
  assert.equal(own[0].type, "session.created.1")
  assert.equal(own[0].data.info.id, sessionID)
  refused(await client.sync.start(), 400, "BadRequest")
  const event = { id: "evt_1", aggregateID: sessionID, seq: 1, type: "session.created.1", data: {} }
  refused(await client.sync.replay({ body_directory: directory, events: [event] }), 400, "BadRequest")
  refused(await client.sync.steal({ sessionID }), 400, "BadRequest")
})
