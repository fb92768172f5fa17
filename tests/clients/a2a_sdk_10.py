"""The Python SDK of A2A, line 1.0."""

import uuid
from contextlib import asynccontextmanager

import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotFoundError, UnsupportedOperationError
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt.api_jwk import PyJWK

from a2a_common import HEADERS, PATIENCE, SETUP, TRANSPORT, URL, Prompt, Webhook, main, refused, rpc, soon

HINTS = "urn:opencode-a2a:extension:stream-hints:v1"
INTERRUPTS = "urn:opencode-a2a:extension:interactive-interrupt:v1"
RECOVERY = "urn:opencode-a2a:extension:interrupt-recovery:v1"
SESSIONS = "urn:opencode-a2a:extension:session-binding:v1"
ALL = [HINTS, INTERRUPTS, RECOVERY, SESSIONS]


def extended(**headers):
    """A call that activates our extensions."""
    return ClientCallContext(service_parameters={"A2A-Extensions": ",".join(ALL)} | headers)


@asynccontextmanager
async def connect(streaming=True):
    async with httpx.AsyncClient(headers=HEADERS, timeout=PATIENCE) as http:
        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            supported_protocol_bindings=[TRANSPORT],
            use_client_preference=True,
        )
        yield await ClientFactory(config).create_from_url(URL)


def request(text, task=None, context_id=None, **configuration):
    """A new message, one of a context, or one to a task."""
    ids = {"task_id": task.id, "context_id": task.context_id} if task else {"context_id": context_id}
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], **ids)
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(**configuration))


async def send(client, text, task=None, context_id=None, context=None, **configuration):
    """Sends without a stream; gives the task."""
    stream = client.send_message(request(text, task, context_id, **configuration), context=context)
    [answered] = [event async for event in stream]
    return answered.task


def shared(holder):
    """What the extensions add to something with metadata."""
    return MessageToDict(holder.metadata).get("shared", {})


def texts(parts):
    return "".join(part.text for part in parts)


def said(events, block="text"):
    """The text of all blocks of a kind."""
    artifacts = [event.artifact_update.artifact for event in events if event.HasField("artifact_update")]
    return "".join(texts(part.parts) for part in artifacts if shared(part)["stream"]["block_type"] == block)


def plain(events):
    """The text of a stream for whom no extension tells the kinds of blocks apart."""
    return "".join(texts(event.artifact_update.artifact.parts) for event in events if event.HasField("artifact_update"))


def number(event):
    """The number of an event."""
    if event.HasField("artifact_update"):
        return shared(event.artifact_update.artifact)["stream"]["sequence"]
    return shared(event.status_update).get("stream", {}).get("sequence") if event.HasField("status_update") else None


def numbers(events):
    found = [number(event) for event in events]
    return [number for number in found if number is not None]


def state(event):
    return (event.task if event.HasField("task") else event.status_update).status.state


def is_block(event):
    return event.HasField("artifact_update")


def asks(event):
    return event.HasField("status_update") and state(event) == TaskState.TASK_STATE_INPUT_REQUIRED


async def drain(stream):
    """The rest of a stream."""
    return [event async for event in stream]


async def until(stream, fits):
    """The events up to the first that fits."""
    events = []
    while True:
        events.append(await soon("event", anext(stream)))
        if fits(events[-1]):
            return events


async def the_card_has_both_transports():
    async with connect() as client:
        async with httpx.AsyncClient() as http:
            card = await A2ACardResolver(http, URL).get_agent_card()
        offered = {(interface.protocol_binding, interface.protocol_version) for interface in card.supported_interfaces}
        assert {("HTTP+JSON", "1.0"), ("JSONRPC", "1.0")} <= offered, offered
        assert card.supported_interfaces[0].protocol_version == "1.0"
        assert card.capabilities.streaming and card.capabilities.push_notifications
        assert card.capabilities.extended_agent_card
        known = {extension.uri for extension in card.capabilities.extensions}
        whole = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
        assert known < {extension.uri for extension in whole.capabilities.extensions}


async def both_cards_are_signed():
    key = PyJWK(SETUP["key"])
    verifier = create_signature_verifier(lambda kid, jku: key, ["ES256"])
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, URL).get_agent_card(signature_verifier=verifier)
    async with connect() as client:
        await client.get_extended_agent_card(GetExtendedAgentCardRequest(), signature_verifier=verifier)
    card.description = "Something else"
    try:
        verifier(card)
    except InvalidSignaturesError:
        return
    raise AssertionError("a changed card passes")


async def a_message_is_answered():
    prompt = Prompt("hello")
    async with connect(streaming=False) as client:
        task = await send(client, prompt.text, context=extended())
        assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
        assert "".join(texts(artifact.parts) for artifact in task.artifacts) == prompt.answer, task
        assert shared(task)["session"]["id"].startswith("ses_"), task
        assert shared(task)["usage"]["total_tokens"] > 0
        again = await client.get_task(GetTaskRequest(id=task.id))
        assert (again.status.state, again.context_id) == (TaskState.TASK_STATE_COMPLETED, task.context_id)
        assert not shared(again), "what was not asked for is not told"
        assert [texts(entry.parts) for entry in again.history if entry.role == Role.ROLE_USER] == [prompt.text]
        assert not (await client.get_task(GetTaskRequest(id=task.id, history_length=0))).history
        other = await send(client, prompt.text, context_id=task.context_id, context=extended())
        assert other.context_id == task.context_id and other.id != task.id
        assert shared(other)["session"]["id"] == shared(task)["session"]["id"]
        await refused(TaskNotFoundError, client.get_task(GetTaskRequest(id=str(uuid.uuid4()))))
        await refused(UnsupportedOperationError, send(client, "more", task))


async def a_message_is_answered_in_a_stream():
    prompt = Prompt("steps")
    async with connect() as client:
        events = await drain(client.send_message(request(prompt.text), context=extended()))
        bare = await drain(client.send_message(request(Prompt("hello").text)))
    assert events[0].HasField("task"), events[0]
    assert said(events) == prompt.answer, events
    assert said(events, "reasoning"), events
    calls = [MessageToDict(part.data) for event in events if event.HasField("artifact_update")
             for part in event.artifact_update.artifact.parts if part.HasField("data")]
    assert calls[-1]["status"] == "completed" and {call["call_id"] for call in calls} == {calls[0]["call_id"]}, calls
    assert state(events[-1]) == TaskState.TASK_STATE_COMPLETED
    assert shared(events[-1].status_update)["usage"]["total_tokens"] > 0
    assert numbers(events) == sorted(set(numbers(events))), numbers(events)
    assert plain(bare) == Prompt("hello").answer and state(bare[-1]) == TaskState.TASK_STATE_COMPLETED, bare
    assert not any(shared(event.status_update) for event in bare if event.HasField("status_update")), bare


async def a_task_is_watched_without_waiting_for_it():
    prompt = Prompt("held")
    async with connect(streaming=False) as client, connect() as watcher:
        task = await send(client, prompt.text, return_immediately=True)
        assert task.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING), task
        stream = watcher.subscribe(SubscribeToTaskRequest(id=task.id))
        first = await soon("event", anext(stream))
        assert first.task.id == task.id, first
        prompt.release()
        events = await drain(stream)
        assert state(events[-1]) == TaskState.TASK_STATE_COMPLETED, events[-1]
        stored = await client.get_task(GetTaskRequest(id=task.id))
        assert stored.status.state == TaskState.TASK_STATE_COMPLETED
        await refused(UnsupportedOperationError, drain(watcher.subscribe(SubscribeToTaskRequest(id=task.id))))


async def a_cut_stream_goes_on():
    prompt = Prompt("held")
    async with connect() as client:
        stream = client.send_message(request(prompt.text), context=extended())
        seen = await until(stream, is_block)
        last = int(number(seen[-1]))
        await stream.aclose()
        again = SubscribeToTaskRequest(id=seen[-1].artifact_update.task_id)
        rest = client.subscribe(again, context=extended(**{"Last-Event-ID": str(last)}))
        prompt.release()
        later = await drain(rest)
        assert numbers(later)[0] == last + 1 and numbers(later) == sorted(set(numbers(later))), (last, later)
        assert said(seen) + said(later) == prompt.answer, (seen, later)
        assert state(later[-1]) == TaskState.TASK_STATE_COMPLETED


async def a_task_is_cancelled():
    prompt = Prompt("held")
    async with connect() as client:
        stream = client.send_message(request(prompt.text))
        seen = await until(stream, is_block)
        task_id = seen[-1].artifact_update.task_id
        other = client.subscribe(SubscribeToTaskRequest(id=task_id))
        await soon("event", anext(other))
        cancelled = await client.cancel_task(CancelTaskRequest(id=task_id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        for open_stream in (stream, other):
            events = await soon("end of the stream", drain(open_stream))
            assert state(events[-1]) == TaskState.TASK_STATE_CANCELED, events
        stored = await client.get_task(GetTaskRequest(id=task_id))
        assert stored.status.state == TaskState.TASK_STATE_CANCELED, stored
        again = await client.cancel_task(CancelTaskRequest(id=task_id))
        assert again.status.state == TaskState.TASK_STATE_CANCELED
    async with connect(streaming=False) as client:
        done = await send(client, Prompt("hello").text)
        await refused(A2AError, client.cancel_task(CancelTaskRequest(id=done.id)))


async def tasks_are_listed_in_pages():
    async with connect(streaming=False) as client:
        first = await send(client, Prompt("hello").text)
        made = [first] + [await send(client, Prompt("hello").text, context_id=first.context_id) for _ in range(2)]
        found, token, pages = [], "", 0
        while token or not pages:
            page = await client.list_tasks(
                ListTasksRequest(context_id=first.context_id, page_size=2, page_token=token))
            assert page.page_size == 2 and page.total_size == 3, page
            found, token, pages = found + list(page.tasks), page.next_page_token, pages + 1
        assert pages == 2
        assert [task.id for task in found] == [task.id for task in reversed(made)], "the newest comes first"
        assert not any(task.artifacts for task in found)
        whole = await client.list_tasks(ListTasksRequest(context_id=first.context_id, include_artifacts=True))
        assert all(task.artifacts for task in whole.tasks)
        cancelled = ListTasksRequest(context_id=first.context_id, status=TaskState.TASK_STATE_CANCELED)
        assert not (await client.list_tasks(cancelled)).tasks
        await refused(A2AError, client.list_tasks(ListTasksRequest(page_token="nonsense")))


def completed(task_id):
    """Whether a notification tells that the task is completed."""
    def fits(body):
        event = ParseDict(body, StreamResponse())
        if event.HasField("task"):
            return event.task.id == task_id and state(event) == TaskState.TASK_STATE_COMPLETED
        update = event.status_update
        return update.task_id == task_id and update.status.state == TaskState.TASK_STATE_COMPLETED
    return fits


async def a_webhook_is_called():
    prompt = Prompt("held")
    webhook = Webhook()
    secret = AuthenticationInfo(scheme="Bearer", credentials="of-the-webhook")
    async with connect(streaming=False) as client:
        task = await send(client, prompt.text, return_immediately=True)
        wanted = TaskPushNotificationConfig(
            task_id=task.id, id="mine", url=webhook.url, token="of-the-task", authentication=secret)
        stored = await client.create_task_push_notification_config(wanted)
        assert (stored.task_id, stored.url) == (task.id, webhook.url), stored
        named = {"task_id": task.id, "id": "mine"}
        found = await client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(**named))
        assert found.url == webhook.url, found
        listing = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert [config.id for config in (await client.list_task_push_notification_configs(listing)).configs] == ["mine"]
        extra = TaskPushNotificationConfig(task_id=task.id, id="other", url=f"{webhook.url}/other")
        await client.create_task_push_notification_config(extra)
        await client.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="other"))
        assert [config.id for config in (await client.list_task_push_notification_configs(listing)).configs] == ["mine"]
        prompt.release()
        for headers, _ in await webhook.until(completed(task.id)):
            found = {name.lower(): value for name, value in headers.items()}
            assert found["x-a2a-notification-token"] == "of-the-task", found
            assert found["authorization"] == "Bearer of-the-webhook", found
    webhook.close()


async def a_webhook_of_a_message_is_called():
    webhook = Webhook()
    async with connect(streaming=False) as client:
        push = TaskPushNotificationConfig(url=webhook.url)
        task = await send(client, Prompt("hello").text, task_push_notification_config=push)
        await webhook.until(completed(task.id))
    webhook.close()


async def asked(client, name):
    """A stream that stands at a request for input: the prompt, what was received, and the stream."""
    prompt = Prompt(name)
    stream = client.send_message(request(prompt.text), context=extended())
    return prompt, await until(stream, asks), stream


async def a_permission_is_given_by_the_extension():
    async with connect() as client:
        prompt, seen, stream = await asked(client, "permission")
        interrupt = shared(seen[-1].status_update)["interrupt"]
        assert (interrupt["type"], interrupt["phase"]) == ("permission", "asked"), interrupt
        assert interrupt["details"]["permission"] == "bash", interrupt
        listed = await rpc("opencode.permissions.list", {}, ALL)
        assert interrupt["request_id"] in [item["request_id"] for item in listed["items"]], listed
        reply = {"request_id": interrupt["request_id"], "reply": "once"}
        assert await rpc("a2a.interrupt.permission.reply", reply, ALL) == {"ok": True, "request_id": reply["request_id"]}
        rest = await drain(stream)
        resolved = [found for event in rest if (found := shared(event.status_update).get("interrupt"))]
        assert resolved[0]["phase"] == "resolved" and resolved[0]["resolution"] == "replied", resolved
        assert state(rest[-1]) == TaskState.TASK_STATE_COMPLETED
        assert said(seen + rest).endswith(prompt.answer), (seen, rest)


async def a_question_is_answered_by_the_extension():
    async with connect() as client:
        prompt, seen, stream = await asked(client, "question")
        interrupt = shared(seen[-1].status_update)["interrupt"]
        assert interrupt["type"] == "question", interrupt
        assert [option["label"] for option in interrupt["details"]["questions"][0]["options"]] == ["Red", "Blue"]
        await rpc("a2a.interrupt.question.reply", {"request_id": interrupt["request_id"], "answers": [["Blue"]]}, ALL)
        rest = await drain(stream)
        assert state(rest[-1]) == TaskState.TASK_STATE_COMPLETED
        assert said(seen + rest).endswith(prompt.answer), (seen, rest)


async def a_permission_is_given_in_plain_words():
    prompt = Prompt("permission")
    async with connect(streaming=False) as client:
        task = await send(client, prompt.text)
        assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, task
        words = texts(task.status.message.parts)
        assert all(word in words for word in ("once", "always", "reject")), words
        still = await send(client, "perhaps", task)
        assert (still.id, still.status.state) == (task.id, TaskState.TASK_STATE_INPUT_REQUIRED), still
        done = await send(client, "once", task)
        assert (done.id, done.status.state) == (task.id, TaskState.TASK_STATE_COMPLETED), done
        assert texts(done.artifacts[-1].parts).endswith(prompt.answer), done


async def a_question_is_answered_in_plain_words():
    async with connect(streaming=False) as client:
        for answer in ("Blue", "Something between red and blue"):
            prompt = Prompt("question")
            task = await send(client, prompt.text)
            assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, task
            words = texts(task.status.message.parts)
            assert all(word in words for word in ("Red", "Blue")), words
            done = await send(client, answer, task)
            assert (done.id, done.status.state) == (task.id, TaskState.TASK_STATE_COMPLETED), done
            assert texts(done.artifacts[-1].parts).endswith(prompt.answer), done


async def an_open_stream_goes_on_after_plain_words():
    async with connect() as client, connect(streaming=False) as other:
        prompt, seen, stream = await asked(client, "permission")
        task = await other.get_task(GetTaskRequest(id=seen[-1].status_update.task_id))
        done = await send(other, "reject", task)
        rest = await drain(stream)
        assert state(rest[-1]) == done.status.state, (rest[-1], done)
        ends = (TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_REJECTED)
        assert done.status.state in ends, done
        assert not said(seen + rest).endswith(prompt.answer)


if __name__ == "__main__":
    main(
        the_card_has_both_transports,
        both_cards_are_signed,
        a_message_is_answered,
        a_message_is_answered_in_a_stream,
        a_task_is_watched_without_waiting_for_it,
        a_cut_stream_goes_on,
        a_task_is_cancelled,
        tasks_are_listed_in_pages,
        a_webhook_is_called,
        a_webhook_of_a_message_is_called,
        a_permission_is_given_by_the_extension,
        a_question_is_answered_by_the_extension,
        a_permission_is_given_in_plain_words,
        a_question_is_answered_in_plain_words,
        an_open_stream_goes_on_after_plain_words,
    )
