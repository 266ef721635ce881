"""Reads facts.txt: questions about fletch, with paraphrases, and their answers."""
import pathlib
import re

from grammar import all_forms, held_out

PATH = pathlib.Path(__file__).with_name("facts.txt")


def read(path=PATH):
    """Returns [(answer, training questions, held-out questions)]."""
    macros, facts, forms = {}, [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("? "):
            text = re.sub(r"\{(\w+)\}", lambda m: macros[m[1]], line[2:])
            forms += all_forms(text)
        elif line.startswith("= "):
            forms = list(dict.fromkeys(forms))
            assert len(forms) >= 6, f"{path.name}:{number}: only {len(forms)} paraphrases"
            held = [f for f in forms if held_out(f, 8)]
            facts.append((line[2:], [f for f in forms if f not in held], held))
            forms = []
        else:
            name, _, value = line.partition(" = ")
            assert re.fullmatch(r"\w+", name), f"{path.name}:{number}: {line}"
            macros[name] = value
    return facts
