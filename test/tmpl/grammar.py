"""Random templates of the subset. Expressions know what kind of value they want and mostly get it,
so that most templates render; now and then any kind will do, so that errors are compared as well."""
import random

NAMES = {
    "str": ["s", "t", "u"], "int": ["n", "m"], "float": ["x"], "bool": ["flag"],
    "list": ["li", "ls", "mixed"], "dict": ["d", "e"], "any": ["nothing", "missing", "msgs"],
}


SEPARATORS = ("','", "' '", "'</think>'", "'\\n', 1")


class Grammar:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.locals = []  # names bound by loops, sets and macro parameters around this point
        self.macros = []
        self.n_names = 0
        self.in_loop = False

    def pick(self, *options):
        return self.r.choice(options)

    def chance(self, p):
        return self.r.random() < p

    def variables(self):
        r = self.r
        return {
            "s": r.choice(["hello world", "  pad\t", "", "Stra\u00dfe \u00c9t\u00e9 \U0001f600", "a,b,,c"]),
            "t": r.choice(["abc", "xyz\nline\n\nlast", "it's \"q\" \\", "\u00a0\u03a3\u0391\u03a3 \ufb01n", "007"]),
            "u": r.choice(["</think>x", "1.5", "-3", "A-b c(d", "\u4e16\u754c\u200b"]),
            "n": r.choice([0, 1, 2, 3, -1, 7]), "m": r.choice([1, 2, 5, 10]),
            "x": r.choice([0.5, 1.0, -2.25, 1e20, 3.14159]), "flag": r.choice([True, False]),
            "li": r.choice([[], [1, 2, 3], [3, 1, 2, 1], [0]]),
            "ls": r.choice([["b", "A", "c"], ["x"], [], ["\u00e9", "e", "E"]]),
            "mixed": r.choice([[1, "a", None, True, 2.5], [[1, 2], [3]], [{"k": 1}, {"k": 2, "j": "z"}]]),
            "d": r.choice([{}, {"a": 1, "b": "two"}, {"k": {"j": [1, 2]}, "items": 3}]),
            "e": r.choice([{"name": "N", "n": None}, {"B": 2, "a": 1, "c": 0}]),
            "nothing": None,
            "msgs": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": " A "},
                     {"role": "user", "content": "R", "n": 2}][:r.choice([0, 2, 3, 3, 3])],
        }

    # ---- expressions ----

    def expr(self, kind, depth):
        if self.chance(0.005):
            kind = self.pick("str", "int", "float", "bool", "list", "dict", "any")
        if depth <= 0 or self.chance(0.2):
            return self.leaf(kind)
        return getattr(self, "x_" + kind)(depth - 1)

    def base(self, kind, depth):
        """Something that may be followed by a member, an index or a call."""
        text = self.expr(kind, depth)
        return f"({text})" if "|" in text or " is " in text or text[0] == "-" else text

    def leaf(self, kind):
        if self.locals and self.chance(0.25 if kind == "any" else 0.04):
            return self.r.choice(self.locals)
        if kind == "any" or self.chance(0.6):
            return self.r.choice(NAMES[kind])
        return {
            "str": lambda: self.pick("'a'", "'b c'", '"x\\ny"', "''", "' '", "'\\u00e9'", "','", "'-' 'z'", "'%'"),
            "int": lambda: self.pick("0", "1", "2", "3", "10", "-1", "1_0"),
            "float": lambda: self.pick("0.5", "1.0", "2.75", "1e3", "1.5e-7"),
            "bool": lambda: self.pick("true", "false", "True", "False"),
            "list": lambda: self.pick("[]", "[1, 2]", "['a', 'b']", "(1, 2)", "range(3)", "[[1, 'x'], [2, 'y']]"),
            "dict": lambda: self.pick("{}", "{'a': 1}", "{'b': [1], 'a': 'x'}", "dict(z=1)"),
        }[kind]()

    def key(self):
        return self.pick("a", "b", "k", "j", "n", "role", "content", "name")

    def x_any(self, d):
        e = self.expr
        return self.r.choice([
            lambda: f"{self.base('dict', d)}.{self.key()}",
            lambda: f"{self.base('dict', d)}['{self.key()}']",
            lambda: f"{self.base('dict', d)}.get('{self.key()}', {e('any', d)})",
            lambda: f"{self.base('list', d)}[{e('int', d)}]",
            lambda: f"msgs[{self.pick('0', '-1', '1', 'n')}].{self.key()}",
            lambda: f"({e('any', d)} if {e('bool', d)} else {e('any', d)})",
            lambda: f"({e('any', d)} if {e('bool', d)})",
            lambda: f"({e('any', d)} {self.pick('or', 'and')} {e('any', d)})",
            lambda: f"{e('list', d)} | {self.pick('first', 'last')}",
            lambda: f"{e('list', d)} | {self.pick('min', 'max')}{self.pick('', '', '(true)', '(attribute=' + repr(self.key()) + ')')}",
            lambda: f"msgs | {self.pick('min', 'max')}(attribute='{self.key()}')",
            lambda: f"{e('list', d)} | sum(start={self.pick('[]', '0', '0.5')})",
            lambda: f"({e('str', d)} | attr('{self.pick('upper', 'strip')}'))()",
            lambda: f"{e('any', d)} | attr('{self.pick('a', 'role')}')",
            lambda: f"{self.pick('d', 'e')}[{e('any', d)}, {e('int', d)}]",
            lambda: f"loop.{self.pick('previtem', 'nextitem', 'depth', 'depth0', 'cycle(1, ' + e('str', d) + ')')}"
            if self.in_loop else e("any", d),
            lambda: f"{e('any', d)} | default({e('str', d)}{self.pick('', ', true')})",
            lambda: e(self.pick("str", "int", "list", "dict", "bool", "float"), d),
        ])()

    def x_str(self, d):
        e = self.expr
        strip = self.pick("strip", "lstrip", "rstrip")
        case = self.pick("upper", "lower", "title", "capitalize")
        return self.r.choice([
            lambda: f"({e('str', d)} + {e('str', d)})",
            lambda: f"({e('any', d)} ~ {e('any', d)} ~ {e('str', d)})",
            lambda: f"{e('str', d)} | {self.pick('trim', case, 'string', 'reverse')}",
            lambda: f"{self.base('str', d)}.{case}()",
            lambda: f"{self.base('str', d)}.{strip}({self.pick('', e('str', d))})",
            lambda: f"{e('str', d)} | trim({e('str', d)})",
            lambda: f"{self.base('str', d)}.replace({e('str', d)}, {e('str', d)}{self.pick('', ', 1')})",
            lambda: f"{e('any', d)} | replace({e('str', d)}, {e('any', d)})",
            lambda: f"{e('list', d)} | join({self.pick('', e('str', d))})",
            lambda: f"{self.base('str', d)}.join({e('list', d)} | map('string'))",
            lambda: f"{self.r.choice(NAMES['str'])}[{self.slice(d)}]",
            lambda: f"{e(self.pick('str', 'int', 'list', 'dict'), d)} | tojson{self.json_args()}",
            lambda: f"{self.base('str', d)}.split({self.pick(*SEPARATORS)})[{self.pick('0', '-1', '1')}]",
            lambda: f"({e('str', d)} * {self.pick('0', '2', '3')})",
            lambda: f"{e('str', d)} | indent({self.pick('', '2', '1, true', 'blank=true')})",
            lambda: f"{self.base('str', d)}.{self.pick('removeprefix', 'removesuffix')}({e('str', d)})",
            lambda: self.macro_call(d),
            lambda: self.formatted(d),
            lambda: self.formatted(d),
            lambda: self.padded(d),
            lambda: self.escaped(d),
            lambda: f"{e('str', d)} | truncate({self.pick('3', '5', '8, true', '6, false, s', '2, true, s[:0], 0', 'n')})",
            lambda: f"{e(self.pick('str', 'dict'), d)} | urlencode",
            lambda: f"{e('dict', d)} | xmlattr{self.pick('', '(false)')}",
            lambda: f"{e(self.pick('int', 'float'), d)} * {self.pick('1', '1000', '123456.0')} | filesizeformat{self.pick('', '(true)')}",
            lambda: f"{self.base('str', d)}.{self.pick('casefold()', 'swapcase()', 'expandtabs()', 'expandtabs(3)', 'zfill(5)')}",
            lambda: f"{self.base('str', d)}.translate({{97: 'AA', 98: none, 108: 76}})",
            lambda: f"{self.base('str', d)}.{self.pick('partition', 'rpartition')}({e('str', d)})[{self.pick('0', '1', '2')}]",
            lambda: f"{self.pick('cy', 'cz')}.{self.pick('next()', 'current')}",
            lambda: "jo()",
        ])()

    def formatted(self, d):
        """A '%' format or str.format, which mostly fits its arguments."""
        e = self.expr
        flags = self.pick("", "", "-", "+", " ", "0", "#", "-0", "+0", "# ")
        width, precision = self.pick("", "", "3", "8", "12"), self.pick("", "", ".0", ".1", ".3", ".10")
        spec = self.pick("", "", "<", ">", "^", "=", "*^", "0=", "\u00e9<") + self.pick("", "", "+", " ", "-")
        spec += self.pick("", "", "z", "#") if self.chance(0.2) else ""
        spec += self.pick("", "", "0") + width + self.pick("", "", ",", "_")
        return self.r.choice([
            lambda: f"('%{flags}{width}{precision}{self.pick('s', 'r', 'a')}' % ({e('any', d)},))",
            lambda: f"('[%{flags}{width}{precision}{self.pick(*'diuoxX')}]' % {e('int', d)})",
            lambda: f"('[%{flags}{width}{precision}{self.pick(*'eEfFgGds')}]' % {e('float', d)})",
            lambda: f"('%s%%%c%(a)s' % {e('any', d)})",
            lambda: f"('%(a)s %(b){width}s' % {e('dict', d)})",
            lambda: f"('%*d|%-*.*s' % ({self.pick('4', '-4')}, {e('int', d)}, 6, 2, {e('str', d)}))",
            lambda: f"{self.pick(repr('%s-%s'), repr('%d'), e('str', d))} | format({', '.join(e('any', d) for _ in range(self.r.randint(0, 2)))})",
            lambda: f"'%(a)s' | format(a={e('any', d)})",
            lambda: f"'{{}}{{}}'.format({e('any', d)}, {e('str', d)})",
            lambda: f"'{{1}}{{0!{self.pick(*'rsa')}}}{{{{}}}}'.format({e('any', d)}, {e('str', d)})",
            lambda: f"'[{{:{spec}{self.pick('', *'bcdoxXneEfFgG%')}}}]'.format({e('int', d)})",
            lambda: f"'[{{:{spec}{precision}{self.pick('', '', *'eEfFgGn%')}}}]'.format({e('float', d)})",
            lambda: f"'[{{:{spec}{precision}{self.pick('', 's')}}}]'.format({e('str', d)})",
            lambda: f"'{{:{self.pick('>', '^', '')}{{}}}}{{}}'.format({e('str', d)}, {e('int', d)}, 1)",
            lambda: f"'{{a}}{{b[{self.key()}]}}{{b.{self.key()}}}'.format(a={e('any', d)}, b={e('dict', d)})",
            lambda: f"'{{0[0]}}{{0}}'.format({e(self.pick('list', 'str'), d)})",
            lambda: f"{self.base('str', d)}.format({e('any', d)})",
            lambda: f"'{{a}}'.format_map({e('dict', d)})",
        ])()

    def padded(self, d):
        fill = self.pick("", "", ", '*'", ", '\u00e9'")
        return self.r.choice([
            lambda: f"{self.base('str', d)}.{self.pick('center', 'ljust', 'rjust')}({self.pick('0', '5', '6', 'm', '11')}{fill})",
            lambda: f"{self.expr('str', d)} | center({self.pick('4', '7', '10', 'n')})",
        ])()

    def escaped(self, d):
        """Strings that Jinja2 takes for safe, and what happens when they meet others."""
        e = self.expr
        text = self.pick("'<a>'", "'&\\''", "s", "t", "u", e("str", d))
        safe = f"({text} | {self.pick('safe', 'escape', 'e', 'forceescape')})"
        method = self.pick("upper()", "replace('a', t)", "strip('ba;')", "join([s, 1])", "center(9, '*')", "zfill(7)")
        return self.r.choice([
            lambda: safe,
            lambda: f"({safe} + {e('str', d)} + '<')",
            lambda: f"('<' + {safe})",
            lambda: f"({safe} ~ '<' ~ {e('any', d)}) + '>'",
            lambda: f"({safe} | {self.pick('upper', 'lower', 'title', 'trim', 'string', 'reverse', 'indent', 'escape', 'first', 'replace(1, 2)', 'center(9)', 'truncate(2)', 'capitalize')}) + '<'",
            lambda: f"{safe}.{method} + '&'",
            lambda: f"{safe}.{self.pick('split()', 'rsplit(s)', 'partition(u)', 'splitlines()')}[0] + '&'",
            lambda: f"({safe} * 2 + '&')",
            lambda: f"{safe}[{self.slice(d)}] + '&'",
            lambda: f"('%s|%r' | safe) % ({e('any', d)}, '<')",
            lambda: f"('{{}}|{{!r:5}}' | safe).format({e('any', d)}, '<')",
            lambda: f"[{safe}]",
            lambda: f"'%s'.join([{safe}]) % '<' ~ {safe}",
        ])()

    def macro_call(self, d):
        if not self.macros:
            return self.leaf("str")
        name, params = self.r.choice(self.macros)
        args = [self.expr("any", d) for _ in params[:self.r.randint(0, len(params))]]
        if len(args) < len(params) and self.chance(0.3):
            args.append(f"{params[-1]}={self.expr('str', d)}")
        if self.chance(0.08):
            args.append(f"*{self.pick('li', 'ls', '[1]', '(s, t)')}")
        if self.chance(0.08):
            args.append(f"**{self.pick('d', 'e', '{}', repr({'zz': 1}))}")
        return f"{name}({', '.join(args)})"

    def json_args(self):
        return self.pick("", "", "(indent=2)", "(indent=0)", "(ensure_ascii=true)", "(sort_keys=true)",
                         "(separators=(',', ':'))")

    def slice(self, d):
        part = lambda: self.pick("", "", self.expr("int", d), "1", "-1")
        return f"{part()}:{part()}{self.pick('', '', ':-1', ':2', ':' + part())}"

    def x_int(self, d):
        e = self.expr
        return self.r.choice([
            lambda: f"({e('int', d)} {self.pick('+', '-', '*')} {e('int', d)})",
            lambda: f"({e('int', d)} {self.pick('//', '%')} {self.pick('2', '3', 'm', '-2', 'n')})",
            lambda: f"{e(self.pick('list', 'str', 'dict'), d)} | {self.pick('length', 'count')}",
            lambda: f"{e(self.pick('str', 'float', 'int', 'list'), d)} | int{self.pick('', '(5)')}",
            lambda: f"-{e('int', d)}" if self.chance(0.5) else f"{e('int', d)} | abs",
            lambda: f"{self.base('str', d)}.{self.pick('find', 'count', 'rfind', 'index', 'rindex')}({e('str', d)}{self.pick('', '', ', 1', ', -2', ', 1, 3', ', none, -1', ', 9', ', n, m')})",
            lambda: f"{e('str', d)} | wordcount",
            lambda: f"{e('list', d)} | sum{self.pick('', '', '(start=2)', '(' + repr('n') + ')')}",
            lambda: f"{self.pick(repr('0x1F'), repr('-101'), repr('z_z'), repr(' 17 '), 's')} | int(9, {self.pick('2', '8', '16', '36', '10')})",
            lambda: f"{self.base('int', d)}.bit_length()" if self.chance(0.3) else self.pick("0x1f", "0b101", "0o1_7"),
            lambda: f"{self.pick('li', 'ls', 'mixed')}.index({e('any', d)}{self.pick('', ', 1', ', 0, -1')})",
            lambda: f"({e('int', d)} if {e('bool', d)} else {e('int', d)})",
            lambda: f"loop.{self.pick('index', 'index0', 'length', 'revindex', 'revindex0')}"
            if self.in_loop else e("int", d),
            lambda: f"(2 ** {self.pick('0', '3', 'm')})",
        ])()

    def x_float(self, d):
        e = self.expr
        return self.r.choice([
            lambda: f"({e('int', d)} / {self.pick('2', 'm', '-3', 'n')})",
            lambda: f"({e('float', d)} {self.pick('+', '-', '*', '/', '//', '%')} {self.pick('2', '0.75', 'm', 'x', '-1.5')})",
            lambda: f"{e('float', d)} | round{self.pick('', '(1)', '(2)', '(1, ' + repr(self.pick('floor', 'ceil')) + ')')}",
            lambda: f"{e(self.pick('str', 'float', 'int', 'list'), d)} | float{self.pick('', '(0.5)')}",
            lambda: f"-{e('float', d)}",
        ])()

    def x_bool(self, d):
        e = self.expr
        test = self.pick("defined", "undefined", "none", "string", "number", "integer", "boolean", "true", "false",
                         "mapping", "iterable", "sequence", "float")
        return self.r.choice([
            lambda: f"{e('any', d)} is {self.pick('', 'not ')}{test}",
            lambda: f"{e('int', d)} is {self.pick('odd', 'even', 'divisibleby 2', 'eq 1', 'in [1, 2]', 'ne(n)', 'gt 1')}",
            lambda: f"({e('any', d)} {self.pick('==', '!=')} {e('any', d)})",
            lambda: f"({e('int', d)} {self.pick('<', '<=', '>', '>=')} {e(self.pick('int', 'float'), d)})",
            lambda: f"({e('str', d)} {self.pick('<', '>=')} {e('str', d)})",
            lambda: f"({e('int', d)} < {e('int', d)} <= {e('int', d)})",
            lambda: f"({e('any', d)} {self.pick('in', 'not in')} {e('list', d)})",
            lambda: f"({e('str', d)} {self.pick('in', 'not in')} {e(self.pick('str', 'dict'), d)})",
            lambda: f"(not {e('bool', d)})",
            lambda: f"({e('bool', d)} {self.pick('and', 'or')} {e('bool', d)})",
            lambda: f"{self.base('str', d)}.{self.pick('startswith', 'endswith')}({e('str', d)}{self.pick('', '', ', 1', ', -3, -1', ', 0, n')})",
            lambda: f"{self.base('str', d)}.is{self.pick('alnum', 'alpha', 'ascii', 'decimal', 'digit', 'identifier', 'lower', 'numeric', 'printable', 'space', 'title', 'upper')}()",
            lambda: f"{e('any', d)} is {self.pick('lower', 'upper', 'escaped', 'filter', 'test', 'callable')}",
            lambda: f"{self.pick(repr('min'), repr('nope'), repr('odd'))} is {self.pick('filter', 'test')}",
            lambda: f"loop.changed({e('any', d)})" if self.in_loop else e("bool", d),
            lambda: f"{self.base('float', d)}.is_integer()",
            lambda: f"loop.{self.pick('first', 'last')}" if self.in_loop else e("bool", d),
        ])()

    def x_list(self, d):
        e = self.expr
        return self.r.choice([
            lambda: f"[{', '.join(e('any', d) for _ in range(self.r.randint(0, 3)))}]",
            lambda: f"({e('list', d)} + {e('list', d)})",
            lambda: f"{self.r.choice(NAMES['list'])}[{self.slice(d)}]",
            lambda: f"{self.pick('li', 'ls', 'mixed', 'msgs')} | sort{self.pick('', '(reverse=true)', '(case_sensitive=true)')}",
            lambda: f"{e('list', d)} | {self.pick('unique | list', 'list', 'reverse | list', 'map(' + repr('string') + ') | list')}",
            lambda: f"{self.base('str', d)}.split({self.pick('', e('str', d), *SEPARATORS)})",
            lambda: f"{self.base('str', d)}.splitlines()",
            lambda: f"{e('str', d)} | list",
            lambda: f"range({e('int', d)}{self.pick('', ', ' + e('int', d))})",
            lambda: f"{self.base('dict', d)}.{self.pick('keys', 'values', 'items')}() | list",
            lambda: f"{e('dict', d)} | {self.pick('items | list', 'dictsort', 'dictsort(true)', 'list')}",
            lambda: f"msgs | map(attribute='{self.key()}'{self.pick('', ', default=0')}) | list",
            lambda: f"msgs | {self.pick('selectattr', 'rejectattr')}('{self.key()}'"
                    f"{self.pick('', ', ' + repr('defined'), ', ' + repr('equalto') + ', ' + repr('user'))}) | list",
            lambda: f"{e('list', d)} | {self.pick('select', 'reject')}"
                    f"{self.pick('', '(' + repr('string') + ')', '(' + repr('eq') + ', 1)', '(' + repr('defined') + ')')} | list",
            lambda: f"{e('list', d)} | map('{self.pick('upper', 'int', 'trim', 'string', 'float', 'capitalize')}') | list",
            lambda: f"({e('list', d)} * 2)",
            lambda: f"{e('list', d)} | {self.pick('batch', 'slice')}({self.pick('0', '1', '2', '3', 'n', '-1')}{self.pick('', '', ', 0')}) | list",
            lambda: f"{self.pick('msgs', 'msgs', 'mixed')} | groupby('{self.key()}'{self.pick('', '', ', default=' + e('str', 0), ', case_sensitive=true')}) | list",
            lambda: f"[{', '.join('{' + repr(self.key()) + ': ' + e('str', 0) + '}' for _ in range(3))}] | groupby('{self.key()}', '') | map('{self.pick('first', 'last', 'list')}') | list",
            lambda: f"{self.base('str', d)}.rsplit({self.pick('', e('str', d), *SEPARATORS)}{self.pick('', '')})",
            lambda: f"{self.base('str', d)}.rsplit({self.pick('none', repr(' '), repr(','), e('str', d))}, {self.pick('0', '1', '2', '-1')})",
            lambda: f"{self.base('str', d)}.{self.pick('partition', 'rpartition')}({e('str', d)}) | list",
            lambda: f"{self.pick('li', 'ls')}.copy()",
        ])()

    def x_dict(self, d):
        e = self.expr
        return self.r.choice([
            lambda: "{" + ", ".join(f"'{self.key()}': {e('any', d)}" for _ in range(self.r.randint(0, 3))) + "}",
            lambda: f"dict(a={e('any', d)}, b={e('any', d)})",
            lambda: f"dict({e('dict', d)}, k={e('any', d)})",
            lambda: f"msgs[{self.pick('0', '-1', '1')}]",
            lambda: self.leaf("dict"),
            lambda: f"dict(**{self.base('dict', d)})",
            lambda: f"{self.base('dict', d)}.copy()",
        ])()

    # ---- statements ----

    def tag(self, text):
        return f"{{%{self.pick('', '', '-', '+')} {text} {self.pick('', '', '-', '+')}%}}"

    def data(self):
        return "".join(self.pick("text", " ", "  ", "\n", "\n  ", "\t", "{", "}", "%", "#", "\u00e9", "\u2003", "x ", "\n\n")
                       for _ in range(self.r.randint(0, 4)))

    def name(self):
        self.n_names += 1
        return f"v{self.n_names}"

    def body(self, depth, n=None):
        saved = list(self.locals), list(self.macros)
        text = self.data()
        for _ in range(n or self.r.randint(1, 3)):
            text += self.statement(depth) + self.data()
        self.locals, self.macros = saved
        return text

    def inner(self, depth, in_loop=None):
        saved = self.in_loop
        if in_loop is not None:
            self.in_loop = in_loop
        text = self.body(depth)
        self.in_loop = saved
        return text

    def statement(self, depth):
        if depth <= 0 or self.chance(0.35):
            return self.printed()
        return self.r.choice([self.s_if, self.s_for, self.s_for, self.s_set, self.s_set, self.s_block, self.s_macro,
                              self.s_space, self.s_misc, self.s_misc, self.s_filter, self.s_call, self.s_with, self.s_inner])(depth - 1)

    def printed(self):
        kind = self.pick("str", "str", "int", "bool", "list", "any", "dict", "float")
        text = self.expr(kind, self.r.randint(0, 3))
        if self.chance(0.05):
            text += " | safe"
        elif self.chance(0.03):
            text += ", " + self.expr("any", 1)
        return f"{{{{{self.pick('', '', '-', '+')} {text} {self.pick('', '', '-')}}}}}"

    def s_if(self, d):
        text = self.tag(f"if {self.expr(self.pick('bool', 'any'), 2)}") + self.inner(d)
        if self.chance(0.4):
            text += self.tag(f"elif {self.expr('bool', 2)}") + self.inner(d)
        if self.chance(0.5):
            text += self.tag("else") + self.inner(d)
        return text + self.tag("endif")

    def s_for(self, d):
        pairs = self.chance(0.25)
        names = [self.name() for _ in range(2 if pairs else 1)]
        over = f"{self.base('dict', 1)}.items()" if pairs else self.expr(self.pick("list", "list", "list", "str"), 2)
        saved = list(self.locals)
        self.locals += names
        condition = f" if {self.expr('bool', 1)}" if self.chance(0.25) else ""
        if self.chance(0.15) and not pairs:
            return self.recursive(names[0], condition, saved)
        text = self.tag(f"for {', '.join(names)} in {over}{condition}") + self.inner(d, True)
        if self.chance(0.15):
            text += self.tag(f"if {self.expr('bool', 1)}") + self.tag(self.pick("break", "continue")) + self.tag("endif")
            text += self.printed()
        self.locals = saved
        if self.chance(0.25):
            text += self.tag("else") + self.inner(d)
        return text + self.tag("endfor")

    def recursive(self, name, condition, saved):
        over = self.pick("[1, [2, [3]], []]", "[[['a']], 'b']", "mixed")
        text = self.tag(f"for {name} in {over}{condition} recursive") + "{{ loop.depth }}:{{ loop.index }}"
        text += self.tag(f"if {name} is sequence and {name} is not string") + f"({{{{ loop({name}) }}}})"
        text += self.tag("else") + f"{{{{ {name} }}}}" + self.tag("endif")
        if self.chance(0.3):
            text += self.tag("else") + "none"
        self.locals = saved
        return text + self.tag("endfor")

    def s_filter(self, d):
        names = self.pick("upper", "trim", "escape", "indent(2, true)", "replace('a', 'b')", "center(20)", "length",
                          "upper | trim", "e | upper", "format(1)", "first", "list")
        return self.tag(f"filter {names}") + self.inner(d) + self.tag("endfilter")

    def s_call(self, d):
        name, params = self.name(), [self.name() for _ in range(self.r.randint(0, 2))]
        args = ", ".join(self.expr("any", 1) for _ in params)
        text = self.tag(f"macro {name}({self.pick('', 'q', 'q=1')})") + "<" + (f"{{{{ caller({args}) }}}}" if self.chance(0.9) else "")
        text += self.pick("{{ q }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller is defined }}", "") + self.tag("endmacro")
        saved = list(self.locals), self.in_loop
        self.locals, self.in_loop = self.locals + params, False
        given = self.pick("", "1", "1, 2", "q=2", "z=3", "*li", "**e")
        text += self.tag(f"call{'(' + ', '.join(params) + ')' if params else ''} {name}({given})") + self.body(d) + self.tag("endcall")
        self.locals, self.in_loop = saved
        return text

    def s_with(self, d):
        names = [self.name() for _ in range(self.r.randint(0, 2))]
        pairs = ", ".join(f"{n} = {self.expr('any', 2)}" for n in names)
        saved = list(self.locals)
        self.locals += names
        text = self.tag(f"with {pairs}") + self.inner(d) + self.tag("endwith")
        self.locals = saved
        return text

    def s_inner(self, d):
        if self.chance(0.5):
            return self.tag("autoescape false") + self.inner(d) + self.tag("endautoescape")
        name, saved = self.name(), (list(self.locals), self.in_loop)
        self.locals, self.in_loop = [], False
        text = self.tag(f"block {name}") + self.inner(d, False) + self.tag(f"endblock{self.pick('', ' ' + name)}")
        self.locals, self.in_loop = saved
        return text

    def s_set(self, d):
        kind = self.pick("str", "int", "list", "any", "dict")
        name = self.r.choice(self.locals) if self.locals and self.chance(0.3) else self.name()
        text = self.tag(f"set {name} = {self.expr(kind, 2)}")
        self.locals.append(name)
        return text + self.printed()

    def s_block(self, d):
        name = self.name()
        filters = self.pick("", "", " | trim", " | upper | length")
        text = self.tag(f"set {name}{filters}") + self.inner(d) + self.tag("endset")
        self.locals.append(name)
        return text + f"{{{{ {name} }}}}"

    def s_macro(self, d):
        name, params = self.name(), [self.name() for _ in range(self.r.randint(0, 3))]
        saved = list(self.locals), self.in_loop
        n_defaults = self.r.randint(0, len(params))
        split = len(params) - n_defaults
        signature = params[:split] + [f"{p}={self.leaf('any')}" for p in params[split:]]
        self.locals = [n for n in self.locals] + params
        self.in_loop = False
        text = self.tag(f"macro {name}({', '.join(signature)})") + self.body(d) + self.tag("endmacro")
        self.locals, self.in_loop = saved
        self.macros.append((name, params))
        return text + f"{{{{ {self.macro_call(1)} }}}}"

    def s_space(self, d):
        name, var = self.name(), self.name()
        text = self.tag(f"set {name} = namespace(a={self.expr('int', 1)}, b='')")
        text += self.tag(f"for {var} in {self.expr('list', 1)}")
        text += self.tag(f"set {name}.a = {name}.a + 1") + self.tag(f"set {name}.b = {name}.b ~ {var} ~ ','")
        return text + self.tag("endfor") + f"{{{{ {name}.a }}}}{{{{ {name}.b }}}}{{{{ {name}.c is defined }}}}"

    def s_misc(self, d):
        return self.r.choice([
            lambda: f"{{#{self.pick('', '-', '+')} note {self.pick('', '-', '+')}#}}",
            lambda: self.tag("raw").replace("+%}", "%}") + "{{ raw }} {% x %}" + self.data() + self.tag("endraw"),
            lambda: self.tag("generation") + self.inner(d, False) + self.tag("endgeneration"),
            lambda: self.tag(f"if {self.expr('bool', 1)}") + f"{{{{ raise_exception({self.expr('str', 1)}) }}}}" + self.tag("endif"),
            lambda: self.tag(f"set {self.name()}, {self.name()} = {self.expr('any', 1)}, {self.expr('any', 1)}"),
        ])()

    def template(self):
        start = "{% set cy, cz, jo = cycler('a', 'b'), cycler(1, none, s), joiner('|') %}"
        return start + self.body(3, self.r.randint(1, 3))
