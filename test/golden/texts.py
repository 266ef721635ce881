"""The text that make_tok.py trains its vocabularies on and the texts it encodes. All of it is our
own. CORPUS is a list of lines; cases() returns the encode cases as byte strings, cases_special()
those that mention a vocabulary's added tokens."""

import random

PROSE = """
The archer set the arrow on the string and drew; the feathers brushed her cheek.
A fletcher cuts each feather by hand, glues it to the shaft, and binds it with thread.
It's late, and we're tired, but they'll say that you've done what I'd do. I'm sure it isn't over.
IT'S LATE, AND WE'RE TIRED, BUT THEY'LL SAY THAT YOU'VE DONE WHAT I'D DO. I'M SURE.
Rain fell on the river, and the river rose; nobody in the town had seen the water so high.
She counted 1, 2, 3, then 10, 20, 30, and at 100 she stopped. The year was 1984, or 2026.
Prices: $3.50, 12,000 EUR, 7%, #42, 1e-5, 0x7f, v2.0.1, 3333333, +49 30 1234567.
"Why?" he asked. "Because," she answered, "the wind is in the east (as always)."
Hello world! Hello, World! HelloWorld helloWorld HELLO_WORLD hello-world.
""".strip(
    "\n"
).split(
    "\n"
)

CODE = r"""
int main(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        printf("%d: %s\n", i, argv[i]);
    }
	return 0;
}
def encode(text, vocab):
    ids = []
    while text:
        n = max(len(t) for t in vocab if text.startswith(t))
        ids.append(vocab[text[:n]]); text = text[n:]
    return ids
SELECT name, COUNT(*) FROM tokens WHERE id >= 256 GROUP BY name;
{"key": [1, 2.5, null, true], "path": "/usr/lib/x86_64/", "url": "https://example.org/a?b=c&d=%20"}
if (a && b || !c) x += y << 2; else x = ~x ^ 0xFF; // no /* comment */ here
""".strip(
    "\n"
).split(
    "\n"
)

WORLD = """
Стрела летит быстро, а река течёт медленно. Лук и стрелы лежат на столе. Съешь ещё булок.
Het water staat hoog; de brug ligt open. Größe, Straße, Übermut, naïve café, œuvre, señor, façade.
Cửa sổ mở ra phía sông. Việt Nam có nhiều sông và núi. Čeština má háčky a čárky: ěščřžýáíé.
箭在弦上，不得不发。河水上涨了，城里的人都没见过这么高的水。今天是二〇二六年。
矢は弦の上にある。川の水が高くなった。カタカナとひらがなを混ぜて書く。ラーメンを３つください。
화살은 활시위 위에 있다. 강물이 높이 올랐다. 한국어 문장을 하나 더 쓴다.
السهم على الوتر والنهر يرتفع. عدد الأيام ١٢٣ يوما.
החץ על המיתר והנהר עולה. תיר पर धनुष है और नदी बढ़ रही है। संख्या १२३४ है।
ลูกธนูอยู่บนสาย แม่น้ำสูงขึ้น ๔๕๖ ครั้ง
Το βέλος είναι στη χορδή και ο ποταμός ανεβαίνει. ΑΒΓ αβγ ς.
🏹 🙂 👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️ ☂ ½ ² ① Ⅷ ㊿ € £ ¥ § © ™ … — – ‘a’ “b” «c»
""".strip(
    "\n"
).split(
    "\n"
)


def corpus():
    rng = random.Random(1)
    lines = PROSE * 3 + CODE * 2 + WORLD * 2
    lines += [
        " ".join(str(rng.randrange(10 ** rng.randrange(1, 7))) for _ in range(8)) for _ in range(10)
    ]
    lines += ["    " * k + "x = y" for k in range(1, 6)] + ["\t" * k + "z();" for k in range(1, 4)]
    lines += ["a\n\nb\n\n\nc\r\nd\r\n\r\ne", "one  two   three    four"]
    return lines


SPACES = [
    "\u0085",
    "\u00a0",
    "\u1680",
    "\u2000",
    "\u200a",
    "\u2028",
    "\u2029",
    "\u202f",
    "\u205f",
    "\u3000",
]
NOT_SPACES = ["\u180e", "\u200b", "\u2060", "\ufeff", "\x1c", "\x1f", "\u2800"]

HAND = [
    "",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\n\n\n",
    "\t\n",
    " \n",
    "\n ",
    " \n \n ",
    "\r\r\n\n\r",
    "a\r\nb\rc\nd",
    "a \r\n b",
    "  \n\n  x",
    "x\n\n  ",
    "\t\t\tx\t \ty",
    "\v\f\x00x",
    "Hello world",
    " Hello",
    "  Hello",
    "   Hello",
    "Hello ",
    "Hello  ",
    "    Hello\n    Hello",
    " Hello World!",
    "Hello, world!",
    "HelloWorld helloWorld HELLOworld XMLHttpRequest iPhone",
    "33333",
    "3333",
    "1",
    "12",
    "123",
    "1234",
    "1234567890123",
    " 12 345",
    "3.14159e-10",
    "a1b22c333",
    "w048 7tuijk dsdfhu",
    "0x7F 0b101",
    "1,234,567.89",
    "²³½¼ ①②③ Ⅷ ㊿ ٣٤٥ १२३४ ๔๕๖ 𝟘𝟙𝟚𝟛 一二三 ３４５６",
    "it's we're you've I'm they'll he'd can't",
    "IT'S WE'RE YOU'VE I'M THEY'LL HE'D CAN'T",
    "It'S wE'rE 'tis 'twas 'Sblood ''s '' ' s 's",
    "' era",
    "'re're'S'T'x'1' '\n'",
    "don’t it’s",
    "rock'n'roll l'été d'accord s'il",
    "x's3'd4't",
    "'LL'Ll'lL",
    "'sab'lleft'rex",
    " this is 🦙.cpp",
    "🏹",
    "👩‍👩‍👧‍👦",
    "👍🏽👍🏿 🇩🇪🇫🇷 ❤️‍🔥",
    " 🙂 🙂🙂  🙂",
    "☂️☂",
    "a🙂b1🙂2",
    "Cửa Việt",
    "Cư\u0309a Viê\u0323t",
    "e\u0301 é \u0301x \u0301\u0301",
    "n\u0303a\u0308o\u0302\u0323",
    "\u1112\u1161\u11ab\u1100\u1173\u11af 한글",
    "\u212b \u2126 \u00c5 A\u030a \u0344 \ufb01 \u1e9b\u0323",
    "a\u0315\u0300\u05ae\u0062 a\u05ae\u0300\u0315",
    "q\u0307\u0323 q\u0323\u0307",
    "\u0958 \u0915\u093c",
    "нещо на Български",
    "Съешь ещё этих мягких французских булок, да выпей чаю.",
    "ЁЖ ёж Е\u0308ж",
    "السهم على الوتر",
    "שָׁלוֹם עֲלֵיכֶם",
    "नमस्ते दुनिया क्षि",
    "สวัสดีชาวโลก",
    "Ελληνικά ς Σ",
    "ÀÁÂãäå ÆŒøß ĳ Ǆ ǅ ǆ ŉ ʼn ª º ʰ ˠ",
    "ǅungla ǅ ᾈ ᾳ",
    "ᏣᎳᎩ ꭰꭱ ⰀⰁ 𐐀𐐨 𞤀𞤢 Ა ა Ⴀ ⴀ",
    "河水上涨了",
    "箭在弦上，不得不发。",
    "カタカナとひらがなABCを１２３混ぜる",
    "ㄅㄆㄇ 々〆〇 龥龦 㐀 𠀀 豈",
    "가나다 힣 ㄱㄴ ퟿ ꥠ",
    "ﾊﾝｶｸ ＡＢＣ ａｂｃ ！？．，",
    "、。「」『』〜・",
    "\u4dff\u4e00\u9fa5\u9fa6\u0800\u07ff",
    '$3.50 £4 €5 ¥6 +49-30 <a href="x">&amp;</a> a^b ~c |d| `e` f=g',
    "a,b;c:d!e?f",
    "...!!!???---",
    "foo_bar __init__ _x x_ -y- a-b",
    "//comment /* x */ http://a.b/c/d?e=f#g\n/path/\n//\n\n",
    '{\n    "a": [1, 2],\n\t"b": {}\n}\n',
    "for (i = 0; i < 10; i++) { s += a[i]; }\n\n\n    return s;\n",
    "#include <stdio.h>\r\n\r\nint main(void)\r\n{\r\n\treturn 0;\r\n}\r\n",
    "!a @b #c \\d [e ]f ^g .h,i",
    "x = y  # z   \n   \n",
    "!!\n\n!!\r\n",
    ' !\n "\n\n\n',
    "a/\nb/\r\n/",
    "«Привет» — „мир“ … ‘a’ “b” ‚c‛ ‟",
    "© ® ™ § ¶ † ‡ • ° ± × ÷ ∑ √ ∞ ≈ ≠ ← → ⇒ ■ ★ ♪ ♯",
    "` ´ ¨ ^ ~ ¯ ¸",
    "𝕳𝖊𝖑𝖑𝖔 𝒲ℴ𝓇𝓁𝒹 ℂℍℕ",
    "\u0378\u0379 a\u0378b \u0378\u0378\u0378 \u2fe0",
    "\ue000\uf8ff a\ue000",
    "\ufffd\ufffe\uffff \U0010ffff",
    "\u200ba\u200b \u200d \u2060 \ufeffx",
    "\x00\x01\x02 \x1b[0m \x7f\x80\x9f",
    "\u00ad soft\u00adhyphen",
    "<s> </s> <unk> <0x41> [PAD1] \u2581a \u2581\u2581",
    "Ġ Ċ Ã© ł Ń",
    "\\n \\x41 \\' \\\"",
    "a" * 300,
    " " * 300,
    " " * 300 + "x",
    "\n" * 100,
    "\r\n" * 60,
    "1" * 100,
    "!" * 100,
    "ab" * 120,
    "é" * 60,
    "\u0301" * 20,
    "🙂" * 20,
    " a" * 50,
    "\t \t " * 20,
    "中" * 60,
    "aA" * 40,
]


def cases():
    out = [t for t in HAND]
    for s in SPACES + NOT_SPACES:
        out.append(f"a{s}b {s}{s}c{s}\n{s}1{s}!{s}")
    rng = random.Random(7)
    pool = list("abcXYZ019 \n\r\t'.,-_/!$<|") * 2 + list("'stmdSTMD  ") + SPACES + NOT_SPACES
    pool += list("éßñЖя中文あア한ع१①½²🙂🏽") + [
        "\u0301",
        "\u0323",
        "\u200d",
        "\u0378",
        "\u093e",
        "\u05d0",
        "ʰ",
        "ǅ",
    ]
    words = "The it's WE'LL arrow стрела 箭 12 3456 printf(\"x\"); \n\n \r\n \t river's ١٢٣ naïve 🏹".split(
        " "
    )
    for i in range(24):
        out.append("".join(rng.choice(pool) for _ in range(rng.randrange(5, 50))))
    for i in range(8):
        out.append("".join(rng.choice(words) + rng.choice(["", " ", " ", "  "]) for _ in range(12)))
    out += ["\n".join(PROSE[:4]), "\n".join(CODE[:6]), "\n".join(WORLD)]
    return [t.encode("utf-8") for t in dict.fromkeys(out)]


def cases_special(added):
    """Texts with added tokens inside; added: their contents."""
    a, b = added[0], added[-1]
    out = []
    for t in added:
        out += [t, f"x{t}y", f" {t} ", f"{t}{t}", f"{t}\n\nHello  {t}  \n"]
    out += [
        f"{a}user\nHello{b}\n{a}assistant\n",
        a[:-1],
        a[1:],
        a[:-1] + " " + a[-1],
        a.upper() + a.lower(),
        f"e{a}\u0301",
        f"  {b}  12{a}34",
        f"'{a}s",
        a[:2] + b + a[2:],
    ]
    return [t.encode("utf-8") for t in dict.fromkeys(out)]
