"""Google's Agent Development Kit: an agent that stands for a remote one, and a person who answers what that asks."""

from contextlib import aclosing

import httpx
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, FunctionResponse, Part

from a2a_common import HEADERS, PATIENCE, URL, Prompt, main

CARD = f"{URL}/.well-known/agent-card.json"


class Conversation:
    """A session of the kit with the remote agent as its only agent."""

    async def __aenter__(self):
        self.http = httpx.AsyncClient(headers=HEADERS, timeout=PATIENCE)
        agent = RemoteA2aAgent(name="trefoil", agent_card=CARD, httpx_client=self.http)
        self.runner = InMemoryRunner(agent=agent, app_name="test")
        self.session = await self.runner.session_service.create_session(app_name="test", user_id="somebody")
        return self

    async def __aexit__(self, *_):
        await self.runner.close()
        await self.http.aclose()

    async def say(self, part):
        """All parts of what comes back, up to the first request for input."""
        message = Content(role="user", parts=[part])
        run = self.runner.run_async(user_id="somebody", session_id=self.session.id, new_message=message)
        parts = []
        async with aclosing(run) as events:
            async for event in events:
                assert not event.error_message, event
                parts += event.content.parts or [] if event.content else []
                # Its stream stays open while the task waits for a person.
                if event.long_running_tool_ids:
                    break
        return parts


def texts(parts):
    return "".join(part.text for part in parts if part.text)


async def a_message_is_answered():
    async with Conversation() as conversation:
        prompt = Prompt("hello")
        assert prompt.answer in texts(await conversation.say(Part(text=prompt.text)))
        assert prompt.answer in texts(await conversation.say(Part(text=prompt.text)))


async def answered(name, words):
    """What comes back after a request for input, which the kit shows as a call of a function, was answered."""
    prompt = Prompt(name)
    async with Conversation() as conversation:
        [call] = [part.function_call for part in await conversation.say(Part(text=prompt.text)) if part.function_call]
        answer = FunctionResponse(id=call.id, name=call.name, response={"result": words})
        parts = await conversation.say(Part(function_response=answer))
        assert prompt.answer in texts(parts), parts
        return call.args["input_required"]


async def a_permission_is_given_in_plain_words():
    asked = await answered("permission", "once")
    assert all(word in asked for word in ("once", "always", "reject")), asked


async def a_question_is_answered_in_plain_words():
    asked = await answered("question", "Blue")
    assert all(word in asked for word in ("Red", "Blue")), asked


main(a_message_is_answered, a_permission_is_given_in_plain_words, a_question_is_answered_in_plain_words)
