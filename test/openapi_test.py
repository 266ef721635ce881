"""The server's document of itself is true: every route is in it, and what the server really
answers, whole and streamed, obeys its schemas. The validator knows just the words that the document
uses; an unknown one is an error."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

build = sys.argv[1] if len(sys.argv) > 1 else "build"
document = json.load(open("web/openapi.json"))
failed = 0


def check(name, wrong):
    global failed
    print(f"not ok {name}: {wrong}" if wrong else f"ok {name}")
    failed += bool(wrong)


# ---- schemas ----

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$ref", "type", "required", "properties", "additionalProperties", "items", "enum", "anyOf",
         "allOf", "description", "minimum", "maximum"}


def is_type(value, name):
    if name in ("integer", "number"):
        return not isinstance(value, bool) and isinstance(value, int if name == "integer" else (int, float))
    return isinstance(value, TYPES[name])


def errors(value, schema, at="answer"):
    """What of the value does not obey the schema, as a list of texts."""
    if set(schema) - KNOWN:
        return [f"{at}: the validator does not know {set(schema) - KNOWN}"]
    if "$ref" in schema:
        return errors(value, document["components"]["schemas"][schema["$ref"].split("/")[-1]], at)
    found = []
    for part in schema.get("allOf", []):
        found += errors(value, part, at)
    if "anyOf" in schema:
        tries = [errors(value, part, at) for part in schema["anyOf"]]
        if all(tries):
            found += min(tries, key=len)
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is not one of {schema['enum']}")
    if "type" in schema and not is_type(value, schema["type"]):
        return found + [f"{at}: {value!r} is no {schema['type']}"]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{at}: no {name}" for name in schema.get("required", []) if name not in value]
        for name, v in value.items():
            if name in known:
                found += errors(v, known[name], f"{at}.{name}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{at}: {name} is not in the document")
    if isinstance(value, list) and "items" in schema:
        for i, v in enumerate(value):
            found += errors(v, schema["items"], f"{at}[{i}]")
    return found


def schema_of(path, status=200, kind="application/json"):
    operation = next(iter(document["paths"][path].values()))
    answer = operation["responses"]["200" if status == 200 else "default"]
    return answer["content"][kind]["schema"]


def test_validator():
    chat = {"$ref": "#/components/schemas/Usage"}
    good = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 0}}
    wrong = [{**good, "total_tokens": "3"}, {**good, "more": 1}, {"prompt_tokens": 1}, []]
    check("the validator sees mistakes", "" if not errors(good, chat) and
          all(errors(w, chat) for w in wrong) else "it does not")


# ---- routes ----

def test_tables():
    for path, args in [("web/openapi.json", ["tools/openapi_base.json"]), ("web/sampling.js", [])]:
        made = subprocess.run([f"{build}/tools/openapi_doc", *args], capture_output=True, text=True)
        same = made.returncode == 0 and made.stdout == open(path).read()
        check(f"{path} is made of the tables", "" if same else f"make docs writes another one {made.stderr}")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(open("tools/openapi_base.json").read().replace('"messages": {"type"', '"massages": {"type"', 1))
        f.flush()
        wrong = subprocess.run([f"{build}/tools/openapi_doc", f.name], capture_output=True, text=True)
    check("a field without a type is found", "" if wrong.returncode and "messages" in wrong.stderr else wrong)


# ---- answers ----

class Server:
    def __init__(self):
        self.process = subprocess.Popen([f"{build}/fletch", "serve", "--port", "0", "--cache-disk", "0", "-c", "512"],
                                        stderr=subprocess.PIPE, text=True)
        self.log = ""
        while not (found := re.search(r"listening on (http://\S+)", self.log)):
            line = self.process.stderr.readline()
            if not line:
                sys.exit(f"not ok the server starts: {self.log}")
            self.log += line
        self.base = found[1]
        end = time.time() + 120
        while self.get("/readyz")[0] != 200 and time.time() < end:
            time.sleep(0.1)

    def open(self, request):
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def get(self, path):
        return self.open(urllib.request.Request(self.base + path))

    def post(self, path, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.open(urllib.request.Request(self.base + path, data,
                                                {"Content-Type": "application/json"}))


def answers(server, name, path, body, status=200, template=None):
    got, text = server.post(path, body) if body is not None else server.get(path)
    if got != status:
        check(name, f"status {got}, not {status}: {text[:300]}")
        return None
    wrong = errors(json.loads(text), schema_of(template or path, status))
    check(name, "; ".join(wrong[:3]))
    return json.loads(text)


def streams(server, name, path, body):
    status, text = server.post(path, {**body, "stream": True})
    events = [json.loads(line[6:]) for line in text.split("\n")
              if line.startswith("data: ") and line != "data: [DONE]"]
    wrong = [e for event in events for e in errors(event, schema_of(path, 200, "text/event-stream"))]
    if status != 200 or len(events) < 3:
        wrong = [f"status {status}, {len(events)} events: {text[:300]}"]
    check(name, "; ".join(wrong[:3]))


TOOL = {"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"],
    "additionalProperties": False}}}
HELLO = [{"role": "user", "content": "Hello"}]
CHAT = {"messages": HELLO, "max_tokens": 12, "seed": 1}
CALL = {**CHAT, "max_tokens": 40, "tools": [TOOL], "tool_choice": "required"}
FLAT = {"type": "function", **TOOL["function"]}
RESPONSE = {"input": "Hello", "max_output_tokens": 12}
MESSAGE = {"messages": HELLO, "max_tokens": 12}
USE = {**MESSAGE, "max_tokens": 40, "tools": [{"name": "f", "input_schema": TOOL["function"]["parameters"]}],
       "tool_choice": {"type": "any"}}


def test_sandbox(server):
    if not sys.platform.startswith("linux"):
        print("skip every thread is in the sandbox: this is not Linux")
        return
    folder = f"/proc/{server.process.pid}/task"
    seccomp = [re.search(r"Seccomp:\s*(\d)", open(f"{folder}/{t}/status").read())[1]
               for t in os.listdir(folder)]
    check("every thread is in the sandbox", "" if set(seccomp) == {"2"} else seccomp)


def test_gets(server):
    for path in ("/livez", "/readyz", "/health", "/v1/status", "/v1/models"):
        answers(server, f"GET {path}", path, None)
    model = json.loads(server.get("/v1/models")[1])["data"][0]["id"]
    answers(server, "GET /v1/models/ID", f"/v1/models/{model}", None, 200, "/v1/models/{id}")
    answers(server, "GET /v1/models/none", "/v1/models/none", None, 404, "/v1/models/{id}")
    status, text = server.get("/openapi.json")
    check("GET /openapi.json", "" if status == 200 and json.loads(text) == document else text[:100])


def test_texts(server):
    answers(server, "completions", "/v1/completions",
            {"prompt": ["a b", "c"], "echo": True, "logprobs": 2, "max_tokens": 4})
    streams(server, "completions, streamed", "/v1/completions", {"prompt": "a", "max_tokens": 4})
    answers(server, "tokenize", "/tokenize", {"content": "a b", "with_pieces": True})
    answers(server, "detokenize", "/detokenize", {"tokens": [5, 6]})
    answers(server, "apply-template", "/apply-template", {"messages": HELLO})


def test_posts(server):
    chat, responses, messages = "/v1/chat/completions", "/v1/responses", "/v1/messages"
    answers(server, "chat", chat, {**CHAT, "n": 2, "logprobs": True, "top_logprobs": 2})
    answers(server, "chat that calls", chat, CALL)
    answers(server, "chat that can't be", chat, {**CHAT, "temperature": "hot"}, 400)
    answers(server, "chat that is no JSON", chat, b"{", 400)
    streams(server, "chat, streamed", chat, {**CHAT, "logprobs": True, "stream_options":
                                             {"include_usage": True, "include_progress": True}})
    streams(server, "chat that calls, streamed", chat, CALL)
    answers(server, "responses", responses, RESPONSE)
    answers(server, "responses that calls", responses,
            {**RESPONSE, "max_output_tokens": 40, "tools": [FLAT], "tool_choice": "required"})
    answers(server, "responses that can't be", responses, {**RESPONSE, "previous_response_id": "x"}, 400)
    answers(server, "responses that may be cut", responses, {**RESPONSE, "truncation": "auto"})
    answers(server, "responses that may be cut somehow", responses, {**RESPONSE, "truncation": "some"}, 400)
    streams(server, "responses, streamed", responses, RESPONSE)
    streams(server, "responses that calls, streamed", responses,
            {**RESPONSE, "max_output_tokens": 40, "tools": [FLAT], "tool_choice": "required"})
    answers(server, "messages", messages, MESSAGE)
    answers(server, "messages that call", messages, USE)
    answers(server, "messages without max_tokens", messages, {"messages": HELLO}, 400)
    streams(server, "messages, streamed", messages, MESSAGE)
    streams(server, "messages that call, streamed", messages, USE)
    answers(server, "count_tokens", messages + "/count_tokens", {"messages": HELLO})
    for form in ("float", "base64"):
        answers(server, f"embeddings as {form}", "/v1/embeddings",
                {"input": ["a", "b c"], "encoding_format": form})
    answers(server, "embeddings of nothing", "/v1/embeddings", {}, 400)


test_validator()
test_tables()
server = Server()
try:
    test_sandbox(server)
    test_gets(server)
    test_texts(server)
    test_posts(server)
finally:
    server.process.terminate()
    server.process.wait(30)
check("the server ends well", "" if server.process.returncode == 0 else server.process.returncode)
sys.exit(failed > 0)
