"""The Python SDK of A2A, the last release of line 0.3."""

import uuid
from contextlib import asynccontextmanager

import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt.api_jwk import PyJWK

from a2a_common import HEADERS, PATIENCE, SETUP, TRANSPORT, URL, Prompt, Webhook, main, refused, rpc, soon

EXTENSIONS = "https://github.com/Intelligent-Internet/opencode-a2a/blob/main/docs/extension-specifications.md"
INTERRUPTS = f"{EXTENSIONS}#shared-interactive-interrupt-v1"
HINTS = f"{EXTENSIONS}#shared-stream-hints-v1"
BOTH = [INTERRUPTS, HINTS]


@asynccontextmanager
async def connect(streaming=True, **config):
    async with httpx.AsyncClient(headers=HEADERS, timeout=PATIENCE) as http:
        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            supported_transports=[TRANSPORT],
            use_client_preference=True,
            **config,
        )
        yield await ClientFactory.connect(URL, config)


def message(text, task=None, context_id=None):
    """A message: a new one, one of a context, or one to a task."""
    ids = {"task_id": task and task.id, "context_id": task.context_id if task else context_id}
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(TextPart(text=text))], **ids)


def texts(parts):
    return "".join(part.root.text for part in parts if part.root.kind == "text")


def block(update):
    """What kind of block an update has."""
    return update.artifact.metadata["shared"]["stream"]["block_type"]


def number(update):
    """The number of an event."""
    holder = update.artifact if isinstance(update, TaskArtifactUpdateEvent) else update
    return ((holder.metadata or {}).get("shared", {}).get("stream", {})).get("sequence")


def said(updates, kind="text"):
    """The text of all blocks of a kind."""
    artifacts = [update for update in updates if isinstance(update, TaskArtifactUpdateEvent)]
    return "".join(texts(update.artifact.parts) for update in artifacts if block(update) == kind)


async def send(client, text, task=None, context_id=None, **options):
    """Sends without a stream; gives the task."""
    [(answered, _)] = [event async for event in client.send_message(message(text, task, context_id), **options)]
    return answered


def copied(event):
    """The SDK goes on writing into what it gave: into the task, and into the first update of an artifact."""
    return tuple(part and part.model_copy(deep=True) for part in event)


async def drain(stream):
    """The rest of a stream: its tasks and updates."""
    return [copied(event) async for event in stream]


async def until(stream, fits):
    """The events up to the first update that fits."""
    events = []
    while True:
        events.append(copied(await soon("update", anext(stream))))
        if events[-1][1] is not None and fits(events[-1][1]):
            return events


def updates(events):
    return [update for _, update in events if update is not None]


def is_block(update):
    return isinstance(update, TaskArtifactUpdateEvent)


def asks(update):
    return isinstance(update, TaskStatusUpdateEvent) and update.status.state == TaskState.input_required


async def the_card_has_both_transports():
    async with connect() as client:
        async with httpx.AsyncClient() as http:
            card = await A2ACardResolver(http, URL).get_agent_card()
        assert card.preferred_transport == "HTTP+JSON"
        assert {"HTTP+JSON", "JSONRPC"} <= {interface.transport for interface in card.additional_interfaces}
        assert card.protocol_version.startswith("0.3")
        assert card.capabilities.streaming and card.capabilities.push_notifications
        known = {extension.uri for extension in card.capabilities.extensions}
        assert card.supports_authenticated_extended_card
        extended = await client.get_card()
        assert known < {extension.uri for extension in extended.capabilities.extensions}


async def both_cards_are_signed():
    key = PyJWK(SETUP["key"])
    verifier = create_signature_verifier(lambda kid, jku: key, ["ES256"])
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, URL).get_agent_card(signature_verifier=verifier)
    async with connect() as client:
        await client.get_card(signature_verifier=verifier)
    card.description = "Something else"
    try:
        verifier(card)
    except InvalidSignaturesError:
        return
    raise AssertionError("a changed card passes")


async def a_message_is_answered():
    prompt = Prompt("hello")
    async with connect(streaming=False) as client:
        task = await send(client, prompt.text)
        assert task.status.state == TaskState.completed, task
        assert "".join(texts(artifact.parts) for artifact in task.artifacts) == prompt.answer, task
        assert task.metadata["shared"]["session"]["id"].startswith("ses_")
        assert task.metadata["shared"]["usage"]["total_tokens"] > 0
        again = await client.get_task(TaskQueryParams(id=task.id))
        assert (again.status.state, again.context_id) == (TaskState.completed, task.context_id)
        assert [texts(entry.parts) for entry in again.history if entry.role == Role.user] == [prompt.text]
        assert len((await client.get_task(TaskQueryParams(id=task.id, history_length=1))).history) == 1
        other = await send(client, prompt.text, context_id=task.context_id)
        assert other.context_id == task.context_id and other.id != task.id
        assert other.metadata["shared"]["session"]["id"] == task.metadata["shared"]["session"]["id"]
        await refused(A2AClientError, client.get_task(TaskQueryParams(id=str(uuid.uuid4()))))
        await refused(A2AClientError, send(client, "more", task))


async def a_message_is_answered_in_a_stream():
    prompt = Prompt("steps")
    async with connect() as client:
        events = await drain(client.send_message(message(prompt.text)))
    received = updates(events)
    assert said(received) == prompt.answer, received
    assert said(received, "reasoning"), received
    calls = [part.root.data for update in received if isinstance(update, TaskArtifactUpdateEvent)
             for part in update.artifact.parts if part.root.kind == "data"]
    assert calls[-1]["status"] == "completed" and {call["call_id"] for call in calls} == {calls[0]["call_id"]}, calls
    last = received[-1]
    assert isinstance(last, TaskStatusUpdateEvent) and last.final and last.status.state == TaskState.completed
    assert last.metadata["shared"]["usage"]["total_tokens"] > 0
    assert not any(update.final for update in received[:-1] if isinstance(update, TaskStatusUpdateEvent))
    numbers = [found for update in received if (found := number(update)) is not None]
    assert numbers == sorted(set(numbers)), numbers


async def a_task_is_watched_without_waiting_for_it():
    prompt = Prompt("held")
    async with connect(streaming=False) as client, connect() as watcher:
        task = await send(client, prompt.text, configuration=MessageSendConfiguration(blocking=False))
        assert task.status.state in (TaskState.submitted, TaskState.working), task
        stream = watcher.resubscribe(TaskIdParams(id=task.id))
        await soon("event", anext(stream))
        prompt.release()
        events = await drain(stream)
        assert events[-1][0].status.state == TaskState.completed, events[-1]
        assert events[-1][1].final
        stored = await client.get_task(TaskQueryParams(id=task.id))
        assert stored.status.state == TaskState.completed
        [snapshot] = await drain(watcher.resubscribe(TaskIdParams(id=task.id)))
        assert snapshot[0].status.state == TaskState.completed and snapshot[1] is None


async def a_cut_stream_goes_on():
    prompt = Prompt("held")
    async with connect() as client:
        stream = client.send_message(message(prompt.text))
        seen = updates(await until(stream, is_block))
        last = number(seen[-1])
        await stream.aclose()
        context = ClientCallContext(state={"http_kwargs": {"headers": {"Last-Event-ID": str(int(last))}}})
        rest = client.resubscribe(TaskIdParams(id=seen[-1].task_id), context=context)
        prompt.release()
        later = updates(await drain(rest))
        numbers = [found for update in later if (found := number(update)) is not None]
        assert numbers[0] == last + 1 and numbers == sorted(set(numbers)), (last, numbers)
        assert said(seen) + said(later) == prompt.answer, (seen, later)
        assert later[-1].final and later[-1].status.state == TaskState.completed


async def a_task_is_cancelled():
    prompt = Prompt("held")
    async with connect() as client:
        stream = client.send_message(message(prompt.text))
        seen = updates(await until(stream, is_block))
        task = TaskIdParams(id=seen[-1].task_id)
        other = client.resubscribe(task)
        await soon("event", anext(other))
        assert (await client.cancel_task(task)).status.state == TaskState.canceled
        for open_stream in (stream, other):
            events = await soon("end of the stream", drain(open_stream))
            assert events[-1][0].status.state == TaskState.canceled and events[-1][1].final, events
        assert (await client.get_task(TaskQueryParams(id=task.id))).status.state == TaskState.canceled
        assert (await client.cancel_task(task)).status.state == TaskState.canceled
    async with connect(streaming=False) as client:
        done = await send(client, Prompt("hello").text)
        await refused(A2AClientError, client.cancel_task(TaskIdParams(id=done.id)))


def completed(task_id):
    return lambda body: body["id"] == task_id and body["status"]["state"] == "completed"


async def a_webhook_is_called():
    prompt = Prompt("held")
    webhook = Webhook()
    secret = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="of-the-webhook")
    config = PushNotificationConfig(id="mine", url=webhook.url, token="of-the-task", authentication=secret)
    async with connect(streaming=False) as client:
        task = await send(client, prompt.text, configuration=MessageSendConfiguration(blocking=False))
        wanted = TaskPushNotificationConfig(task_id=task.id, push_notification_config=config)
        stored = await client.set_task_callback(wanted)
        assert (stored.task_id, stored.push_notification_config.url) == (task.id, webhook.url), stored
        params = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="mine")
        assert (await client.get_task_callback(params)).push_notification_config.url == webhook.url
        prompt.release()
        received = await webhook.until(completed(task.id))
        for headers, body in received:
            found = {name.lower(): value for name, value in headers.items()}
            assert found["x-a2a-notification-token"] == "of-the-task", found
            assert found["authorization"] == "Bearer of-the-webhook", found
            assert Task.model_validate(body).id == task.id
    webhook.close()


async def a_webhook_of_a_message_is_called():
    webhook = Webhook()
    config = PushNotificationConfig(url=webhook.url)
    async with connect(streaming=False, push_notification_configs=[config]) as client:
        task = await send(client, Prompt("hello").text)
        await webhook.until(completed(task.id))
    webhook.close()


async def asked(client, name):
    """A stream that stands at a request for input; the prompt, what was received, and the stream."""
    prompt = Prompt(name)
    stream = client.send_message(message(prompt.text))
    seen = await until(stream, asks)
    return prompt, seen, stream


async def a_permission_is_given_by_the_extension():
    async with connect(extensions=BOTH) as client:
        prompt, seen, stream = await asked(client, "permission")
        interrupt = seen[-1][1].metadata["shared"]["interrupt"]
        assert (interrupt["type"], interrupt["phase"]) == ("permission", "asked"), interrupt
        assert interrupt["details"]["permission"] == "bash", interrupt
        assert not seen[-1][1].final
        listed = await rpc("opencode.permissions.list", {}, BOTH)
        assert interrupt["request_id"] in [item["request_id"] for item in listed["items"]], listed
        reply = {"request_id": interrupt["request_id"], "reply": "once"}
        assert await rpc("a2a.interrupt.permission.reply", reply, BOTH) == {"ok": True, "request_id": reply["request_id"]}
        rest = await drain(stream)
        resolved = [update.metadata["shared"]["interrupt"] for update in updates(rest)
                    if update.metadata and "interrupt" in update.metadata.get("shared", {})]
        assert resolved[0]["phase"] == "resolved" and resolved[0]["resolution"] == "replied", resolved
        assert rest[-1][0].status.state == TaskState.completed
        assert said(updates(seen) + updates(rest)).endswith(prompt.answer), (seen, rest)


async def a_question_is_answered_by_the_extension():
    async with connect(extensions=BOTH) as client:
        prompt, seen, stream = await asked(client, "question")
        interrupt = seen[-1][1].metadata["shared"]["interrupt"]
        assert interrupt["type"] == "question", interrupt
        assert [option["label"] for option in interrupt["details"]["questions"][0]["options"]] == ["Red", "Blue"]
        answer = {"request_id": interrupt["request_id"], "answers": [["Blue"]]}
        await rpc("a2a.interrupt.question.reply", answer, BOTH)
        rest = await drain(stream)
        assert rest[-1][0].status.state == TaskState.completed
        assert said(updates(seen) + updates(rest)).endswith(prompt.answer), (seen, rest)


async def a_permission_is_given_in_plain_words():
    prompt = Prompt("permission")
    async with connect(streaming=False) as client:
        task = await send(client, prompt.text)
        assert task.status.state == TaskState.input_required, task
        words = texts(task.status.message.parts)
        assert all(word in words for word in ("once", "always", "reject")), words
        still = await send(client, "perhaps", task)
        assert (still.id, still.status.state) == (task.id, TaskState.input_required), still
        done = await send(client, "once", task)
        assert (done.id, done.status.state) == (task.id, TaskState.completed), done
        assert texts(done.artifacts[-1].parts).endswith(prompt.answer), done


async def a_question_is_answered_in_plain_words():
    async with connect(streaming=False) as client:
        for answer in ("Blue", "Something between red and blue"):
            prompt = Prompt("question")
            task = await send(client, prompt.text)
            assert task.status.state == TaskState.input_required, task
            words = texts(task.status.message.parts)
            assert all(word in words for word in ("Red", "Blue")), words
            done = await send(client, answer, task)
            assert (done.id, done.status.state) == (task.id, TaskState.completed), done
            assert texts(done.artifacts[-1].parts).endswith(prompt.answer), done


async def an_open_stream_goes_on_after_plain_words():
    async with connect() as client, connect(streaming=False) as other:
        prompt, seen, stream = await asked(client, "permission")
        done = await send(other, "reject", seen[-1][0])
        rest = await drain(stream)
        assert rest[-1][0].status.state == done.status.state, (rest[-1], done)
        assert done.status.state in (TaskState.completed, TaskState.failed, TaskState.rejected), done
        assert not said(updates(seen) + updates(rest)).endswith(prompt.answer)


main(
    the_card_has_both_transports,
    both_cards_are_signed,
    a_message_is_answered,
    a_message_is_answered_in_a_stream,
    a_task_is_watched_without_waiting_for_it,
    a_cut_stream_goes_on,
    a_task_is_cancelled,
    a_webhook_is_called,
    a_webhook_of_a_message_is_called,
    a_permission_is_given_by_the_extension,
    a_question_is_answered_by_the_extension,
    a_permission_is_given_in_plain_words,
    a_question_is_answered_in_plain_words,
    an_open_stream_goes_on_after_plain_words,
)
