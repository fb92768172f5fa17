"""Microsoft's Agent Framework: an agent that stands for a remote one, and a person who answers what that asks."""

from contextlib import asynccontextmanager

import httpx
from a2a.client import A2ACardResolver
from agent_framework_a2a import A2AAgent

from a2a_common import HEADERS, PATIENCE, TRANSPORT, URL, Prompt, main


@asynccontextmanager
async def connect():
    async with httpx.AsyncClient(headers=HEADERS | {"A2A-Version": "1.0"}, timeout=PATIENCE) as http:
        card = await A2ACardResolver(http, URL).get_agent_card()
        agent = A2AAgent(agent_card=card, http_client=http, supported_protocol_bindings=[TRANSPORT])
        yield agent, agent.create_session()


async def a_message_is_answered():
    prompt = Prompt("hello")
    async with connect() as (agent, session):
        assert (await agent.run(prompt.text, session=session)).text == prompt.answer
        updates = [update async for update in agent.run(Prompt("steps").text, session=session, stream=True)]
        assert Prompt("steps").answer in "".join(update.text for update in updates), updates


async def answered(name, words):
    """The request for input in plain words, after it was answered."""
    prompt = Prompt(name)
    async with connect() as (agent, session):
        [request] = (await agent.run(prompt.text, session=session)).user_input_requests
        response = await agent.run(words, session=session)
        assert not response.user_input_requests and prompt.answer in response.text, response.to_dict()
        return request.text


async def a_permission_is_given_in_plain_words():
    asked = await answered("permission", "once")
    assert all(word in asked for word in ("once", "always", "reject")), asked


async def a_question_is_answered_in_plain_words():
    asked = await answered("question", "Blue")
    assert all(word in asked for word in ("Red", "Blue")), asked


main(a_message_is_answered, a_permission_is_given_in_plain_words, a_question_is_answered_in_plain_words)
