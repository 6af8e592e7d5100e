"""Drives a running server with the official client: `openai_client.py MODE LAB`, where LAB is a
JSON file with the address, the key and what the adapters were taught. Prints the number of checks."""

import asyncio
import json
import sys

import openai

try:
    import httpx2 as httpx
except ImportError:  # older clients build on the older name
    import httpx

mode, lab = sys.argv[1], json.load(open(sys.argv[2], encoding="utf-8"))
checks = 0


def check(condition, *what):
    global checks
    checks += 1
    assert condition, what


def client(key=None, **more):
    if lab.get("unix"):
        transport = httpx.HTTPTransport(uds=lab["unix"])
        more["http_client"] = httpx.Client(transport=transport)
    return openai.OpenAI(base_url=lab["url"], api_key=key or lab["key"], max_retries=0, timeout=120, **more)


def raises(kind, call):
    try:
        call()
    except kind as error:
        check(True)
        return error
    raise AssertionError(f"no {kind.__name__}")


def user(text):
    return [{"role": "user", "content": text}]


def collect(stream):
    """The message that the pieces of a stream make up, for each choice."""
    out = {}
    for chunk in stream:
        for choice in chunk.choices:
            got = out.setdefault(choice.index, {"content": "", "reasoning": "", "calls": [], "reasons": [], "logprobs": [], "pieces": 0})
            delta = choice.delta
            got["pieces"] += 1
            got["content"] += delta.content or ""
            got["reasoning"] += getattr(delta, "reasoning_content", None) or ""
            check("\ufffd" not in (delta.content or "") or lab["random"] == chunk.model, "a character was cut", delta)
            for call in delta.tool_calls or []:
                check(call.index == len(got["calls"]), call)
                got["calls"].append(call)
            if choice.logprobs:
                got["logprobs"] += choice.logprobs.content
            if choice.finish_reason:
                got["reasons"].append(choice.finish_reason)
    return out


def chat():
    ai = client()
    names = [model.id for model in ai.models.list()]
    check(names == [lab["random"], "caller", "writer"], names)
    check(ai.models.retrieve("writer").id == "writer")

    # Two adapters and the base model at once, streamed and not, each says its own.
    async def both():
        ai = openai.AsyncOpenAI(base_url=lab["url"], api_key=lab["key"], max_retries=0, timeout=120)

        async def whole(name, text):
            return await ai.chat.completions.create(model=name, messages=user(text), temperature=0, max_tokens=80)

        async def pieces(name, text):
            content, usage = "", None
            stream = await ai.chat.completions.create(
                model=name, messages=user(text), temperature=0, max_tokens=80, stream=True, stream_options={"include_usage": True}
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    content += choice.delta.content or ""
                usage = chunk.usage or usage
            return content, usage

        tasks = []
        for _ in range(4):
            tasks += [whole("writer", lab["say"]), pieces("writer", lab["say"]), whole("caller", lab["ask"]), whole(lab["random"], lab["say"])]
        done = await asyncio.gather(*tasks)
        for writer, (content, usage), caller, base in zip(*[iter(done)] * 4):
            check(writer.choices[0].message.content == lab["said"], writer)
            check(writer.choices[0].finish_reason == "stop")
            check(content == lab["said"] and usage.completion_tokens == writer.usage.completion_tokens, content)
            check(caller.choices[0].message.content != lab["said"] and base.choices[0].message.content != lab["said"])
            check(writer.model == "writer" and writer.system_fingerprint == base.system_fingerprint)

    asyncio.run(both())

    # Tools: a thought, a text and a call, then the result and the last word.
    messages = user(lab["ask"])
    asked = dict(model="caller", tools=lab["tools"], temperature=0, max_tokens=200)
    answer = ai.chat.completions.create(messages=messages, **asked)
    message = answer.choices[0].message
    check(answer.choices[0].finish_reason == "tool_calls", answer)
    check(message.reasoning_content == lab["thought"] and message.content == lab["before"], message)
    call = message.tool_calls[0]
    check(call.function.name == "weather" and json.loads(call.function.arguments) == lab["arguments"], call)
    streamed = collect(ai.chat.completions.create(messages=messages, stream=True, **asked))[0]
    check(streamed["content"] == message.content and streamed["reasoning"] == message.reasoning_content, streamed)
    check(streamed["calls"][0].function.arguments == call.function.arguments and streamed["reasons"] == ["tool_calls"], streamed)
    messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": lab["result"]}]
    last = ai.chat.completions.create(messages=messages, **asked)
    check(last.choices[0].message.content == lab["last"] and last.choices[0].finish_reason == "stop", last)
    none = ai.chat.completions.create(messages=user(lab["ask"]), tool_choice="none", **asked)
    check(not none.choices[0].message.tool_calls, none)

    # A call that must come: opened in the prompt, given back as part of the answer, and never made up.
    for choice in ["required", {"type": "function", "function": {"name": "weather"}}]:
        must = dict(model="caller", messages=user(lab["tell"]), tools=lab["tools"], tool_choice=choice, temperature=0, max_tokens=80)
        answer = ai.chat.completions.create(**must)
        message = answer.choices[0].message
        check(answer.choices[0].finish_reason == "tool_calls" and len(message.tool_calls) == 1 and not message.content, answer)
        check(json.loads(message.tool_calls[0].function.arguments) == lab["arguments"], message)
        streamed = collect(ai.chat.completions.create(stream=True, **must))[0]
        check([call.function.arguments for call in streamed["calls"]] == [message.tool_calls[0].function.arguments], streamed)
        must["model"] = lab["random"]
        answer = ai.chat.completions.create(**must)
        message = answer.choices[0].message
        check(answer.choices[0].finish_reason != "tool_calls" and not message.tool_calls, answer)
        check(message.content.startswith("<tool_call>\n"), message)

    # A thought within a budget; what follows it has its own limit.
    opened = dict(model=lab["random"], messages=user("Go."), temperature=0, max_tokens=8)
    opened["extra_body"] = {"thinking_budget": 3, "chat_template_kwargs": {"open_thought": True}}
    answer = ai.chat.completions.create(**opened)
    message, usage = answer.choices[0].message, answer.usage
    check(1 <= usage.completion_tokens_details.reasoning_tokens <= 3, usage)
    check(message.reasoning_content and message.content, message)
    check(usage.completion_tokens > usage.completion_tokens_details.reasoning_tokens + 8, usage)
    streamed = collect(ai.chat.completions.create(stream=True, **opened))[0]
    check(streamed["content"] == message.content and streamed["reasoning"] == message.reasoning_content, streamed)
    again = ai.chat.completions.create(**opened).usage
    check(again.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1, again)
    opened["extra_body"]["thinking_token_budget"] = 4
    error = raises(openai.BadRequestError, lambda: ai.chat.completions.create(**opened))
    check(error.param == "thinking_token_budget", error)

    # Stop strings, lengths, parts of contents.
    stopped = ai.chat.completions.create(model="writer", messages=user(lab["say"]), temperature=0, stop=[lab["stop"]])
    check(stopped.choices[0].message.content == lab["said"].split(lab["stop"])[0] and stopped.choices[0].finish_reason == "stop", stopped)
    stream = ai.chat.completions.create(model="writer", messages=user(lab["say"]), temperature=0, stop=lab["stop"], stream=True)
    check(collect(stream)[0]["content"] == stopped.choices[0].message.content)
    for field in ["max_tokens", "max_completion_tokens"]:
        short = ai.chat.completions.create(model="writer", messages=user(lab["say"]), temperature=0, **{field: 3})
        check(short.choices[0].finish_reason == "length" and short.usage.completion_tokens == 3, short)
    parts = [{"role": "user", "content": [{"type": "text", "text": lab["say"]}]}]
    check(ai.chat.completions.create(model="writer", messages=parts, temperature=0).choices[0].message.content == lab["said"])

    # Choices, seeds, log-probabilities.
    drawn = dict(model=lab["random"], messages=user("Go."), n=3, max_tokens=16, temperature=1.0, logprobs=True, top_logprobs=3)
    one = ai.chat.completions.create(seed=11, **drawn)
    two = ai.chat.completions.create(seed=11, **drawn)
    texts = [choice.message.content for choice in one.choices]
    check(texts == [choice.message.content for choice in two.choices] and len(set(texts)) == 3, texts)
    entries = one.choices[0].logprobs.content
    check(sum(len(c.logprobs.content) for c in one.choices) == one.usage.completion_tokens)
    check(all(entry.logprob <= 0 and entry.bytes is not None for entry in entries), entries)
    check(all(len(e.top_logprobs) == 3 and e.top_logprobs[0].logprob >= e.logprob for e in entries), entries)
    streamed = collect(ai.chat.completions.create(seed=11, stream=True, **drawn))
    check([streamed[i]["content"] for i in range(3)] == texts, streamed)
    check([e.logprob for e in streamed[0]["logprobs"]] == [e.logprob for e in entries])
    free = ai.chat.completions.create(**drawn)
    again = ai.chat.completions.create(seed=free.seed, **drawn)
    check([c.message.content for c in again.choices] == [c.message.content for c in free.choices])

    # Raw completions.
    raw = ai.completions.create(model=lab["random"], prompt="abc", max_tokens=5, temperature=0, logprobs=0)
    check(raw.choices[0].finish_reason == "length" and len(raw.choices[0].logprobs.token_logprobs) == 5, raw)
    text = "".join(c.choices[0].text for c in ai.completions.create(model=lab["random"], prompt="abc", max_tokens=5, temperature=0, stream=True))
    check(text == raw.choices[0].text)

    # Refusals are the client's own exceptions, and name the field.
    create = ai.chat.completions.create
    error = raises(openai.NotFoundError, lambda: create(model="gpt-4o", messages=user("x")))
    check(error.code == "model_not_found" and "writer" in str(error), error)
    for field, value in [
        ("logit_bias", {"5": 1}),
        ("presence_penalty", 0.5),
        ("response_format", {"type": "json_object"}),
        ("n", 1000),
        ("temperature", -1),
        ("tool_choice", "required"),  # without tools
    ]:
        error = raises(openai.BadRequestError, lambda: create(model="writer", messages=user("x"), **{field: value}))
        check(error.param == field, error)
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    check("image_url" in str(raises(openai.BadRequestError, lambda: create(model="writer", messages=image))))
    error = raises(openai.BadRequestError, lambda: create(model="writer", messages=user("x" * 3000)))
    check(error.code == "context_length_exceeded", error)
    raises(openai.AuthenticationError, lambda: client("wrong").models.list())


def unix():
    ai = client()
    check([model.id for model in ai.models.list()][0] == lab["random"])
    answer = ai.chat.completions.create(model="writer", messages=user(lab["say"]), temperature=0)
    check(answer.choices[0].message.content == lab["said"], answer)


def busy():
    """One slot and no queue: of calls that come together one is served and others are refused; a patient one goes through."""
    from concurrent.futures import ThreadPoolExecutor

    ai = client()

    def call(seed):
        try:
            ai.chat.completions.create(model=lab["random"], messages=user("Go."), seed=seed, temperature=1.0, max_tokens=1900)
        except openai.RateLimitError as error:
            check(error.response.headers["retry-after"] == "1")
            return "refused"
        return "served"

    # How long an answer takes is up to the machine: calls come until two of them have met.
    met, seed = set(), 0
    while met != {"served", "refused"}:
        check(seed < 2000, f"{seed} calls by 8 clients and only {met}")
        with ThreadPoolExecutor(8) as clients:
            met.update(clients.map(call, range(seed, seed + 8)))
        seed += 8
    patient = openai.OpenAI(base_url=lab["url"], api_key=lab["key"], max_retries=5, timeout=120)
    stream = patient.chat.completions.create(model=lab["random"], messages=user("Go."), max_tokens=1900, stream=True)
    next(iter(stream))
    stream.close()
    check(patient.chat.completions.create(model=lab["random"], messages=user("x"), max_tokens=1).usage.completion_tokens == 1)


{"chat": chat, "unix": unix, "busy": busy}[mode]()
print(f"{checks} checks with openai {openai.__version__}")
