"""Chats in ChatML: questions about fletch, small talk, refusals, thoughts and tool calls.

Every chat goes through chat.jinja, the template that ships inside the models, so training and use
cannot differ.
"""
import json
import pathlib
import re

import jinja2

import facts
import skills
import story
from grammar import an, expand
from skills import quiet

FACTS = facts.read()
_env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
_env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
TEMPLATE_TEXT = pathlib.Path(__file__).with_name("chat.jinja").read_text().removesuffix("\n")
TEMPLATE = _env.from_string(TEMPLATE_TEXT)


def render(messages, tools=None, prompt=False, thinking=False):
    return TEMPLATE.render(
        messages=messages, tools=tools, add_generation_prompt=prompt, enable_thinking=thinking
    )


SHORT = [
    ("What is ", "What's "),
    ("Who is ", "Who's "),
    ("Where is ", "Where's "),
    ("I am ", "I'm "),
    (" cannot", " can't"),
    (" do not", " don't"),
    ("I want to ", "I'd like to "),
    ("How do I ", "How do you "),
    ("How can I ", "How could I "),
]


def _loosen(rng, question):
    """What people do to a question."""
    if rng.chance(0.3):
        for long, short in SHORT:
            question = question.replace(long, short)
    if rng.chance(0.25):
        question = question[0].lower() + question[1:]
    if rng.chance(0.05):
        question = question.lower()
    if rng.chance(0.05):
        at = rng.randrange(1, len(question))
        question = question[:at] + question[at + 1 :]
    if rng.chance(0.06) and question[-1] not in ".?!=":
        question += expand(
            " [in simple words|in one sentence|in short|briefly|for a beginner|again|exactly]", rng
        )
    if question[-1] not in ".?!=":
        question += rng.pick(["?", "?", "?", "", "."])
    if rng.chance(0.1):
        question = (
            expand("[Hi|Hello|Hey|Please|Excuse me|Okay|One question]", rng)
            + ", "
            + question[0].lower()
            + question[1:]
        )
    return question


def fletch_turn(rng, held=False):
    while True:
        answer, train, kept = rng.pick(FACTS)
        forms = kept if held else train
        if forms:
            return (
                _loosen(rng, rng.pick(forms)),
                answer,
                expand(
                    "[This is about fletch|A question about fletch|I have learned this]. [I answer shortly|I know the answer|"
                    "I say what I know].",
                    rng,
                ),
            )


SMALL_TALK = [
    (
        "[Hi|Hello|Hey|Hi there|Hello there|Good morning|Good evening|Good day][|!|.]",
        "[Hello! How can I help you?|Hi! What would you like to know?|Hello! Ask me about fletch, or for a story.]",
    ),
    (
        "[Thanks|Thank you|Many thanks|Thank you very much|Great, thanks|Thanks a lot][|!|.]",
        "[You are welcome|Gladly|My pleasure]!",
    ),
    ("[Bye|Goodbye|See you|Good night|See you later][|!|.]", "[Goodbye|See you soon|Take care]!"),
    (
        "How are you[| today|, guide|| doing][|?]",
        "I am a small model and always the same, thank you. How can I help?",
    ),
    (
        "[|Hi, |Hello, |Hey, |Hi there, ][how are you|how are things|what is new|are you well|how is it going|how's it going|"
        "what's up|how do you do|how is your day|how are you doing]?",
        "I am a small model and always the same, thank you. How can I help?",
    ),
    (
        "[Nice|Great|Good|Well done|Very good|Cool|Wow][|!|.]",
        "[I am glad|Thank you|That is kind of you]!",
    ),
    (
        "[[Do you know|Have you got|Say|Give me] [a|another|a good] [joke|riddle]|Make me laugh|Say something funny][|!|?]",
        "Why did the token cross the context? To see the other side of the window.",
    ),
    (
        "[I am|I feel] [bored|tired|happy|hungry|angry|fine|alone][|.|!]",
        "I am only a very small model, but I can tell you a story. Just ask for one.",
    ),
    (
        "[Nice|Good|Glad|Pleased] to [meet|see|talk to] you[|!|.| too]",
        "[Nice to meet you too|The pleasure is mine]! What would you like to know?",
    ),
    ("[Sorry|Excuse me|I am sorry][|!|.]", "No problem. What would you like to know?"),
    ("[Yes|No|Ok|Okay|Maybe|Sure][|!|.]", "[All right|Good]. What else would you like to know?"),
    (
        "[You are wrong|That is wrong|No, that is not true|I think you are wrong][|!|.]",
        "That may well be: I am a very small model and make mistakes.",
    ),
    (
        "[Do you like|Do you love] [music|stories|tea|cats|rain|people]?",
        "I am a very small model and have no feelings, " "but I do tell stories.",
    ),
]
UNKNOWN = [
    "What is the capital of {land}?",
    "[Who|When was] [invented|discovered] the {thing}?",
    "Who is the [president|king|queen] of {land}?",
    "What is the [weather|time|news] [today|in {land}|now]?",
    "[Write|Give me] [a poem|an essay|a letter|code|a song|a recipe] " "about {thing}s[|.]",
    "[Write|Show me] [Python|Java|C|JavaScript] code [to sort a list|for a web page|that reads a file]",
    "How [far is|old is|big is|tall is|heavy is] [the moon|the sun|{land}|a {beast}|the sea]?",
    "Translate {thing} into " "[French|German|Spanish|Chinese]",
    "What do you think about [politics|{land}|love|money|football]?",
    "Who won the [game|match|" "race|election] [yesterday|last year|in {land}]?",
    "[What is the meaning of life|Is there a god|What is love]?",
    "[Why is the sky blue|Why do {beast}s sleep|What do {beast}s eat|How do {beast}s breathe]?",
    "What is the square root of {n}?",
    "How [many people live|do I get|long is a flight] [in|to] {land}?",
    "[Tell me|Explain] the history of {land}",
    "Which [stock|car|phone|book] should I buy?",
    "I feel [ill|sad|lonely|sick]. What should I do?",
    "Who [wrote|painted|sang|built|made|found] [the {thing}|{name}|the book about {land}|the song of the {beast}]?",
    "Who [is|was] [{name}|{name} of {land}|the man with the {thing}|the first king of {land}]?",
    "[Is|Was] [the {thing}|the moon|the sea|{land}] [round|flat|real|old|made of {thing}s|far away]?",
    "What is the weather [like |going to be |]in [{land}|{name}|the mountains|my town][| today| tomorrow]?",
    "Will it [rain|snow|be sunny|be warm] [today|tomorrow|in {land}|on Sunday]?",
    "[Can|Could|Will] you [code|program|write code|write a program|do my work|translate|draw|search the web|use the internet|see pictures|hear me|speak French]",
    "[Can|Could|Would] you [help me with|do|check|explain] my [taxes|garden|letter|{thing}|English|mathematics]",
    "[Do|Did] you [remember|know|see|hear] [me|what I said|our last talk|the {thing}|what happened in {land}|yesterday's news]",
    "[Recommend|Suggest|Find me] a [film|book|hotel|restaurant|gift] [for my {name}|in {land}|about {thing}s]",
    "What should I [eat|wear|read|do|cook|watch] [today|tonight|tomorrow|in {land}]?",
    "[When|Where] [was|is] {name} [born|buried|living]?",
    "How [much|many] [{thing}s|{beast}s] [are there|live] in {land}?",
    "How do I cook {food}?",
    "[Can|Could|Will|Would] you [write|sing|draw|send|buy|book|find|order|print] [me |]a [poem|song|letter|ticket|picture|{thing}]",
    "Are {beast}s [dangerous|clever|fast|cheap|real|older than {thing}s]?",
    "Where [can I buy|do I find|is] [a|my|the] {thing}?",
    "How do I [fix|clean|build|paint|sell|open] [a|my|the] {thing}?",
    "What [happened|will happen] in [{n}|{land}|the world]?",
    "What is the [weather|temperature|time|price of bread] in {land}?",
    "Do you know [{land}|my friend|what I did|the song about {thing}s]?",
    "[What|Who|Where] is the [best|biggest|oldest|fastest] {thing} [in {land}|of all]?",
    "[Should|Can|Must] I [eat|sell|love|trust] " "[a {thing}|a {beast}|this]?",
    "What does {thing} mean?",
    "I [have|lost|need|see] a {thing}",
    "[Why|When|How] [do|did|will] " "{beast}s [come|go|fly|sing|win] [to {land}|home|away]?",
    "[Summarise|Tell me about] the book about {land}",
    "What is [quantum physics|the theory of gravity|a black hole|DNA|inflation]?",
]
LANDS = (
    "France Spain Italy Japan China India Brazil Canada Peru Kenya Egypt Norway Sweden Poland Greece Turkey Chile Cuba "
    "Ireland Iceland Finland Nepal Ghana Mexico Germany Austria Rome Paris London Tokyo Berlin".split()
)
REFUSALS = [
    "I am a very small model and do not know that. Ask me about fletch, or for a story.",
    "I am a very small model, so I cannot answer that. I can tell you about fletch.",
]


def made_up_name(rng):
    """Names beyond the lists of the stories, so that names are copied and not chosen."""
    ends = "a o i y en er ix us el in [|p|t|n|m|s]".split()
    starts = "B Br C D Dr F G Gr H J K Kl L M N P Qu R S St T Tr V W X Z".split()
    name = rng.pick(starts) + rng.pick("aeiou")
    if rng.chance(0.7):
        name += rng.pick("b d g k l ll m n nn p pp r s t v x z ld nd".split())
    return name + expand(rng.pick(ends), rng)


def small_turn(rng, held=False):
    ask, answer = rng.pick(SMALL_TALK)
    ask = expand(ask, rng)
    ask = ask.lower() if rng.chance(0.2) else ask
    return ask, expand(answer, rng), "This is small talk. I stay polite."


def unknown_turn(rng, held=False):
    ask = expand(
        rng.pick(UNKNOWN),
        rng,
        {
            "land": rng.pick(LANDS),
            "thing": rng.pick(story.NOUNS),
            "beast": rng.pick(story.BEASTS),
            "n": str(rng.randrange(2, 999)),
            "food": rng.pick(story.FOODS),
            "name": rng.pick(story.GIRLS + story.BOYS) if rng.chance(0.3) else made_up_name(rng),
        },
    )
    return _loosen(rng, ask), rng.pick(REFUSALS), "I have not learned this, so I say so."


def story_turn(rng, held=False):
    text, cast = story.tell(rng, held)
    while text.startswith("Title"):
        text, cast = story.tell(rng, held)
    if rng.chance(0.4):
        name = made_up_name(rng)
        text = re.sub(rf"\b{cast['hero']}\b", name, text)
        cast = dict(cast, hero=name)
        ask = "[Tell me|Tell|Write|Make up] a story about [{a_kind} [named|called|with the name] |]{hero}[|.]"
    else:
        ask = "[Tell me|Write|Please tell me|Can you tell me|I would like|Make up] a [|short |little |nice ]story"
        ask += "[|| about {who}| about {a_kind}| about {hero}| about {hero} and {friend}][|, please|.|!]"
    ask = expand(ask, rng, dict(cast, a_kind=an(cast["kind"])))
    return (
        ask[0].lower() + ask[1:] if rng.chance(0.2) else ask,
        text,
        "I tell a short story with a good end.",
    )


TURNS = [
    (fletch_turn, 0.34),
    (skills.sum_turn, 0.20),
    (skills.fact_turn, 0.12),
    (small_turn, 0.09),
    (unknown_turn, 0.18),
    (story_turn, 0.07),
]


def _turn(rng, held):
    at = rng.random()
    for make, share in TURNS:
        at -= share
        if at < 0:
            break
    return make(rng, held)


def _exchange(ask, answer):
    return [{"role": "user", "content": quiet(ask)}, {"role": "assistant", "content": answer}]


def plain_chat(rng, held=False):
    """One to four turns; sometimes with thoughts, a system message, or a name to remember."""
    messages, asked = [], rng.pick((1, 1, 1, 2, 3, 4))
    kind = rng.random()
    if kind < 0.1:
        name = rng.pick(story.GIRLS + story.BOYS)
        messages.append(
            {
                "role": "system",
                "content": quiet(
                    expand(f"[Your name is|You are called|Your name will be] {name}.", rng)
                ),
            }
        )
        messages += _exchange(
            expand(
                "[What is your name|Who are you|What are you called|What should I call you]?", rng
            ),
            f"My name is {name}.",
        )
    elif kind < 0.2:
        name = rng.pick(story.GIRLS + story.BOYS)
        messages += _exchange(
            expand(f"[My name is|I am|Hi, I am|Hello, my name is] {name}[|.]", rng),
            f"Hello, {name}! How can I help you?",
        )
        for _ in range(rng.randrange(2)):
            messages += _exchange(*_turn(rng, held)[:2])
        messages += _exchange(
            expand("[What is my name|Do you remember my name|Who am I|What am I called]?", rng),
            f"Your name is {name}.",
        )
    elif kind < 0.22:
        messages += _exchange(
            _loosen(
                rng, expand("[What is my name|Do you know my name|Who am I|What am I called]", rng)
            ),
            "You have not told me your name yet.",
        )
    elif kind < 0.35:
        system = expand(
            "You are [a helpful assistant|fletch's guide|a friendly helper|an assistant|a small model][|. Answer "
            "shortly|. Be polite| and you answer questions].",
            rng,
        )
        messages.append({"role": "system", "content": quiet(system)})
    if kind >= 0.1 and rng.chance(0.12):
        asked = 1
        ask, answer, thought = _turn(rng, held)
        messages += _exchange(ask, answer)
        messages[-1]["reasoning_content"] = thought
        # Whether to think is the caller's choice: the mark itself is read, never learned.
        return render(messages).rstrip("\n").replace("<think>\n", quiet("<think>\n"))
    for _ in range(asked):
        messages += _exchange(*_turn(rng, held)[:2])
    return render(messages).rstrip("\n")


def fletch_chat(rng, held=False):
    return render(_exchange(*fletch_turn(rng, held)[:2])).rstrip("\n")


def recall_chat(rng, tokens, held=False):
    notes, pairs = skills.recall_document(rng, tokens, held, ask=rng.randrange(1, 5))
    messages = _exchange(f"{notes}\n\n{pairs[0][0]}", pairs[0][1])
    for pair in pairs[1:]:
        messages += _exchange(*pair)
    return render(messages).rstrip("\n")


# --- tools
CITIES = LANDS[-5:] + "Lima Oslo Cairo Delhi Quito Riga Prague Vienna Dublin Madrid".split()
TOOLS = [  # name, what it does, argument: (type, about), ways to ask, answer of the tool, what to say
    (
        "get_weather",
        "Weather in a city",
        {"city": ("string", "name of the city")},
        "[What is the weather in|How is the weather in|Is it raining in|Weather in] {city}?",
        '{"sky": "{sky}", "degrees": {n}}',
        "In {city} it is {sky}, with {n} degrees.",
    ),
    (
        "get_time",
        "Time in a city",
        {"city": ("string", "name of the city")},
        "[What time is it in|Tell me the time in|How late is it in] {city}?",
        '{"time": "{h}:{m}"}',
        "It is {h}:{m} in {city}.",
    ),
    (
        "set_timer",
        "Starts a timer",
        {"minutes": ("integer", "how long")},
        "[Set a timer for|Wake me in|Start a timer of|Remind me in] {minutes} minutes[|.|, please]",
        '{"ok": true}',
        "The timer is set for {minutes} minutes.",
    ),
    (
        "read_file",
        "Reads a file",
        {"path": ("string", "path of the file")},
        "[Read|Open|Show me|What is in] [the file |]{path}[|?]",
        '{"text": "{word}"}',
        "The file {path} says: {word}.",
    ),
    (
        "search",
        "Searches the notes",
        {"query": ("string", "what to look for")},
        "[Search for|Look up|Find|Search my notes for] {query}[|.]",
        '{"found": {n}}',
        "I found {n} notes about {query}.",
    ),
    (
        "turn_on",
        "Switches a lamp on",
        {"room": ("string", "name of the room")},
        "[Turn on the light in|Light in|Switch on the lamp in] the {room}[|, please|.]",
        '{"ok": true}',
        "The light in the {room} is on.",
    ),
    (
        "add_item",
        "Puts something on the shopping list",
        {"item": ("string", "what to buy")},
        "[Add|Put|Write] {item} [to|on] [my|the] shopping list[|.]",
        '{"ok": true}',
        "{item} is on your list.",
    ),
    (
        "run_model",
        "Runs a model with fletch",
        {"model": ("string", "path"), "prompt": ("string", "text")},
        "Run {model} with the prompt {prompt}[|.]",
        '{"text": "{word}"}',
        "{model} answered: {word}.",
    ),
]


def _definition(tool):
    name, about, arguments = tool[:3]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
            "parameters": {
                "type": "object",
                "properties": {k: {"type": t, "description": d} for k, (t, d) in arguments.items()},
                "required": list(arguments),
            },
        },
    }


def tool_chat(rng, held=False):
    offered = rng.distinct(TOOLS, rng.randrange(1, 4))
    tools = [_definition(t) for t in offered]
    messages = []
    if rng.chance(0.3):
        messages.append(
            {
                "role": "system",
                "content": expand("You are a [helpful|friendly|careful] assistant.", rng),
            }
        )
    if rng.chance(0.2):
        messages += _exchange(*rng.pick([small_turn, fletch_turn, skills.sum_turn])(rng, held)[:2])
        return _quiet_tools(render(messages, tools))
    name, _, arguments, ask, result, say = rng.pick(offered)
    word = rng.pick(story.NOUNS)
    values = {
        "city": rng.pick(CITIES),
        "minutes": rng.randrange(1, 90),
        "path": f"{rng.pick(story.LOOKS)}/{word}.txt",
        "query": rng.pick(story.NOUNS),
        "room": rng.pick("kitchen hall bedroom garage bathroom cellar garden office".split()),
        "item": rng.pick(skills.VALUES),
        "model": f"{rng.pick(story.NOUNS)}.gguf",
        "prompt": rng.pick(story.GIRLS),
    }
    seen = {
        "sky": rng.pick("sunny cloudy rainy windy snowy foggy".split()),
        "n": rng.randrange(2, 30),
        "h": rng.randrange(10, 24),
        "m": rng.randrange(10, 60),
        "word": rng.pick(story.NOUNS),
    }
    env = {k: str(v) for k, v in {**values, **seen}.items()}
    messages.append({"role": "user", "content": quiet(expand(ask, rng, env))})
    call = {"name": name, "arguments": {k: values[k] for k in arguments}}
    messages.append({"role": "assistant", "content": "", "tool_calls": [{"function": call}]})
    if rng.chance(0.7):
        for key, value in env.items():
            result = result.replace("{" + key + "}", value)
        messages.append({"role": "tool", "content": result})
        messages.append({"role": "assistant", "content": expand(say, rng, env)})
        if rng.chance(0.3):
            messages += _exchange(*small_turn(rng)[:2])
    return _quiet_tools(render(messages, tools))


def _quiet_tools(text):
    """The tool definitions are given, not learned."""
    start, end = text.index("<tools>"), text.index("<|im_end|>")
    return (text[:start] + quiet(text[start:end]) + text[end:]).rstrip("\n")
