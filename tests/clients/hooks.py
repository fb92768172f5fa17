"""What Schemathesis is told about the server under test: things that exist, and where requests may leave traces.

TREFOIL_KNOWN is a JSON object of path parameters that lead to something; TREFOIL_DIRECTORY is the project.
"""

import json
import os
import zlib

import requests
import schemathesis

KNOWN = json.loads(os.environ["TREFOIL_KNOWN"])
DIRECTORY = os.environ["TREFOIL_DIRECTORY"]


def chosen(value):
    """Half of all values, always the same ones."""
    return zlib.crc32(repr(value).encode("utf-8", "surrogatepass")) % 2 == 0


def inside(value):
    """A path of the project."""
    return f"{DIRECTORY}/{value.replace('..', '')}" if isinstance(value, str) else value


# Operations after which a prompt waits until somebody undoes them, and what undoes them.
HOLDING = {"/pause": ("/resume", None), "/budget": ("/budget", {})}


@schemathesis.hook
def after_call(context, case, response):
    """A session that a request held up goes on at once: a later prompt for it would never be answered."""
    for holds, (undoes, body) in HOLDING.items():
        if case.operation.path.endswith(holds) and response.status_code // 100 == 2:
            url = response.request.url.split("?")[0].removesuffix(holds) + undoes
            undone = requests.post(url, json=body, timeout=20)
            assert undone.status_code // 100 == 2, f"{url}: {undone.status_code} {undone.text}"


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Half of the requests are about something that exists; what exists is neither deleted nor held up."""
    holds = context.operation.path.endswith(tuple(HOLDING))
    if path_parameters and context.operation.method != "delete" and not holds and chosen(path_parameters):
        path_parameters.update({name: KNOWN[name] for name in path_parameters if name in KNOWN})
    return path_parameters


@schemathesis.hook
def map_query(context, query):
    """Requests may read any directory of this machine, but they change the project alone."""
    if query and context.operation.method != "get" and "directory" in query:
        query["directory"] = DIRECTORY if chosen(query) else inside(query["directory"])
    return query


@schemathesis.hook
def map_body(context, body):
    """The same for directories in bodies. Half of the prompts go to an agent and a model that exist."""
    if isinstance(body, dict):
        for name in ("directory", "cwd"):
            if name in body:
                body[name] = inside(body[name])
        if "agent" in body and chosen(body):
            body["agent"] = "build"
            body.pop("model", None)
    return body
