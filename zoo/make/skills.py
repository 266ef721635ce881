"""Sums, counting, days and months, spelling, and recall over long texts.

A text may switch the loss off and on again with the byte QUIET: what no model could predict (random
operands, random lists) is then read but not learned. A switch must stand where the tokenizer cuts anyway.
"""
import string

import story
from grammar import expand, held_out

QUIET = "\x01"
END = "<|endoftext|>"


def quiet(text):
    return QUIET + text + QUIET


def sum_is_held(a, b):
    """One in ten of the sums of two two-digit numbers is never seen in training."""
    return a > 9 and b > 9 and held_out((min(a, b), max(a, b)), 10)


def operands(rng, held=False):
    while True:
        size = rng.random()
        if held or size < 0.7:
            a, b = rng.randrange(100), rng.randrange(100)
        elif size < 0.9:
            a, b = rng.randrange(10), rng.randrange(10)
        else:
            a, b = rng.randrange(100), rng.randrange(10)
            a, b = rng.pick([(a, b), (b, a)])
        if sum_is_held(a, b) == held:
            return a, b


def calculation(rng, held=False):
    """(left side, sign, right side, result)"""
    a, b = operands(rng, held)
    kind = 0.0 if held else rng.random()
    if kind < 0.75:
        return a, "+", b, a + b
    if kind < 0.9:
        return max(a, b), "-", min(a, b), abs(a - b)
    a, b = rng.randrange(11), rng.randrange(11)
    return a, "*", b, a * b


def sum_document(rng, held=False):
    """Many tiny documents at once: a plain line such as 1+1=2 has to be able to stand alone."""
    out = []
    for _ in range(rng.randrange(16, 40)):
        a, sign, b, c = calculation(rng, held)
        gap = " " if rng.chance(0.15) else ""
        end = END if rng.chance(0.9) else "\n"
        out.append(quiet(f"{a}{gap}{sign}{gap}{b}{gap}=") + f"{gap}{c}{end}")
    return "".join(out).removesuffix(END)


WORDS = {"+": "[plus|and]", "-": "minus", "*": "times"}
ASK_SUM = [
    "{a}{sign}{b}",
    "{a} {sign} {b}",
    "What is {a}{sign}{b}?",
    "What is {a} {word} {b}?",
    "{a}{sign}{b}=",
    "[How much is|Calculate|Please compute|Can you work out|Tell me] {a} {sign} {b}[|?|.]",
    "[How much is|Work out|What do you get for] {a} {word} {b}?",
]


def sum_turn(rng, held=False):
    """(question, answer, thought)"""
    a, sign, b, c = calculation(rng, held)
    ask = expand(
        rng.pick(ASK_SUM), rng, {"a": str(a), "b": str(b), "sign": sign, "word": WORDS[sign]}
    )
    thought = f"I work out {a}{sign}{b}."
    if sign == "+":
        ones, carry = a % 10 + b % 10, (a % 10 + b % 10) // 10
        tens = a // 10 + b // 10
        thought = f"{a}+{b}: ones {a % 10}+{b % 10}={ones}, tens {a // 10}+{b // 10}={tens}"
        thought += f", plus carry 1 is {tens + 1}." if carry else "."
    return ask, f"{a}{sign}{b}={c}", thought


UNITS = "zero one two three four five six seven eight nine ten eleven twelve".split()
LENGTHS = dict(zip(story.MONTHS, (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)))
SPELL = sorted(
    set(
        story.NOUNS
        + story.BEASTS
        + story.TRAITS
        + story.LOOKS
        + [t for t in story.THINGS if "-" not in t]
    )
)


def fact_turn(rng, held=False):
    """Counting, the calendar and spelling: (question, answer, thought)."""
    kind = rng.randrange(9)
    if kind == 0:
        a = rng.randrange(60)
        b = a + rng.randrange(3, 13)
        up = rng.chance(0.7)
        line = range(a, b + 1) if up else range(b, a - 1, -1)
        return (
            expand(f"[Count|Please count|Can you count] from {line[0]} to {line[-1]}[|.|?]", rng),
            ", ".join(map(str, line)) + ".",
            "I add one each time." if up else "I take away one each time.",
        )
    if kind == 1:
        n = rng.randrange(99)
        after = rng.chance(0.6)
        ask = f"[What|Which number] comes [right |]{'after' if after else 'before'} {n if after else n + 1}?"
        return (
            expand(ask, rng),
            f"{n + 1 if after else n} comes {'after' if after else 'before'} "
            f"{n if after else n + 1}.",
            "This is counting.",
        )
    if kind in (2, 3):
        names, unit = (story.DAYS, "day") if kind == 2 else (story.MONTHS, "month")
        i, after = rng.randrange(len(names)), rng.chance(0.6)
        j = (i + (1 if after else -1)) % len(names)
        word = "after" if after else "before"
        return (
            expand(f"[What|Which] {unit} [comes|is] {word} {names[i]}?", rng),
            f"{names[j]} comes {word} {names[i]}.",
            f"I know the {unit}s in order.",
        )
    if kind == 4:
        month = rng.pick(story.MONTHS)
        extra = ", and 29 in a leap year" if month == "February" else ""
        return (
            expand(f"How many days [has|are in|does] {month}[| have]?", rng),
            f"{month} has {LENGTHS[month]} days{extra}.",
            "I know the months.",
        )
    if kind == 5:
        i = rng.randrange(12)
        return (
            expand(f"[What|Which] is month [number |]{i + 1}?", rng),
            f"Month {i + 1} is {story.MONTHS[i]}.",
            "I know the months in order.",
        )
    if kind == 6:
        what, items = rng.pick([("days of the week", story.DAYS), ("months", story.MONTHS)])
        return (
            expand(f"[List|Name|Tell me|What are] the {what}[|, please|.]", rng),
            ", ".join(items) + ".",
            f"I list the {what} in order.",
        )
    word = rng.pick(SPELL)
    if kind == 7:
        return (
            expand(
                f"[Spell|How do you spell|Please spell|Can you spell] [the word |]{word}[|?|.]", rng
            ),
            f"{word}: {'-'.join(word)}.",
            "Letter by letter.",
        )
    return (
        expand(f"How many letters [has|are in] [the word |]{word}?", rng),
        f"{'-'.join(word)}: {len(word)} letters.",
        "I spell it and count.",
    )


def fact_document(rng, held=False):
    """The same as plain text: questions and answers line by line."""
    lines = []
    for _ in range(rng.randrange(3, 9)):
        ask, answer, _ = fact_turn(rng, held)
        lines.append(quiet(f"Q: {ask}\nA:") + f" {answer}\n")
    return "".join(lines)


# --- recall: lists of pairs, asked for later
VALUES = sorted(
    set(
        story.COLOURS
        + story.BEASTS
        + "apples bread butter chalk cheese clay cloth coal cocoa corn cotton dust flour "
        "glass gold grain gravel hay honey ice ink iron ivory jam lace lead leather lemons linen marble milk moss "
        "nails nuts oats oil olives paper pearls pepper plums rice rope rubies rye salt sand seeds silk smoke snow "
        "soap spice steel straw string sugar tea tin water wax wheat wine wood wool yarn".split()
    )
)
RELATIONS = [
    ("The {key} holds {value}.", "What does the {key} hold?"),
    ("The {key} is full of {value}.", "What is the {key} full of?"),
    ("The {key} belongs to {value}.", "Who does the {key} belong to?"),
    ("The code of the {key} is {value}.", "What is the code of the {key}?"),
    ("The {key} costs {value} coins.", "How much does the {key} cost?"),
]


def recall_document(rng, tokens, held=False, ask=None, relation=None):
    """(notes about `tokens` tokens long, [(question, answer)]). Some notes come twice; the second time, their
    value can be known and is learned. The notes begin and end with the loss off."""
    line, question = relation or rng.pick(RELATIONS + RELATIONS[:3])  # words are harder than numbers
    if "belongs" in line:
        values = story.GIRLS + story.BOYS
    elif "code" in line:
        values = ["".join(rng.choices(string.digits, k=3)) for _ in range(200)]
    elif "costs" in line:
        values = [str(n) for n in range(2, 100)]
    else:
        values = VALUES
    filler, again = (
        rng.pick((0.0, 0.0, 0.5)),
        rng.pick((0.0, 0.3, 0.5, 0.6)) if ask is None else 0.0,
    )
    joint = rng.pick([" ", "\n"])
    notes, keys, pending = [], {}, []
    while tokens > 0 or not keys:
        if rng.chance(filler):
            if not pending:
                pending = story.story(rng, held).replace("\n", " ").split(". ")
            text = pending.pop(0).strip()
            notes.append(text if text.endswith((".", "!", "?", '"')) else text + ".")
        elif keys and rng.chance(again):
            key = rng.pick(list(keys))
            start, end = line.split("{value}")
            value = (QUIET + " {value}" + QUIET).format(value=keys[key])
            notes.append(start.strip().format(key=key) + value + end)
        else:
            key = f"{rng.pick(story.LOOKS)} {rng.pick(story.NOUNS)}"
            if key in keys:
                continue
            keys[key] = rng.pick(values)
            notes.append(line.format(key=key, value=keys[key]))
        tokens -= notes[-1].count(" ") + 3
    count = ask or min(24, 2 + len(keys) // 4)
    asked = rng.sample(sorted(keys), min(count, len(keys)))
    return joint.join(notes), [
        (question.format(key=k), line.format(key=k, value=keys[k])) for k in asked
    ]


def recall_plain(rng, tokens, held=False):
    notes, pairs = recall_document(rng, tokens, held)
    out = [QUIET, "Notes:\n", notes, "\n\n"]
    for question, answer in pairs:
        out += [f"Question: {question}\nAnswer:", QUIET, f" {answer}\n", QUIET]
    return "".join(out[:-1])
