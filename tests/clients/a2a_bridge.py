"""opencode-a2a between the Python SDK and Trefoil's server: what it needs of an OpenCode server must be there."""

from a2a.types import CancelTaskRequest, TaskState

from a2a_common import Prompt, main, rpc, soon
from a2a_sdk_10 import ALL, a_permission_is_given_by_the_extension, a_question_is_answered_by_the_extension
from a2a_sdk_10 import connect, drain, extended, is_block, request, said, send, shared, state, until

SESSIONS = [*ALL, "urn:opencode-a2a:extension:session-management:v1"]


async def a_message_is_answered():
    prompt = Prompt("hello")
    async with connect(streaming=False) as client:
        task = await send(client, prompt.text, context=extended())
        assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
        assert [part.text for artifact in task.artifacts for part in artifact.parts] == [prompt.answer], task
        assert shared(task)["usage"]["total_tokens"] > 0
        session = shared(task)["session"]["id"]
    listed = await rpc("opencode.sessions.list", {}, SESSIONS)
    assert session in [item["id"] for item in listed["items"]], listed
    messages = await rpc("opencode.sessions.messages.list", {"session_id": session}, SESSIONS)
    assert len(messages["items"]) == 2, messages
    found = await rpc("opencode.sessions.get", {"session_id": session}, SESSIONS)
    assert found["item"]["id"] == session, found


async def a_message_is_answered_in_a_stream():
    prompt = Prompt("steps")
    async with connect() as client:
        events = await drain(client.send_message(request(prompt.text), context=extended()))
    assert said(events) == prompt.answer and said(events, "reasoning"), events
    assert state(events[-1]) == TaskState.TASK_STATE_COMPLETED


async def a_task_is_cancelled():
    async with connect() as client:
        stream = client.send_message(request(Prompt("held").text))
        seen = await until(stream, is_block)
        task_id = seen[-1].artifact_update.task_id
        cancelled = await client.cancel_task(CancelTaskRequest(id=task_id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        # What it keeps may be that the session failed: it writes that down after the cancellation.
        events = await soon("end of the stream", drain(stream))
        assert state(events[-1]) == TaskState.TASK_STATE_CANCELED, events


main(
    a_message_is_answered,
    a_message_is_answered_in_a_stream,
    a_permission_is_given_by_the_extension,
    a_question_is_answered_by_the_extension,
    a_task_is_cancelled,
)
