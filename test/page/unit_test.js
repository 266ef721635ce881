// The page's modules that need no browser.
import assert from 'node:assert/strict';
import { webcrypto } from 'node:crypto';
import { test } from 'node:test';
import {
    addChunk,
    alternativeStart,
    answerSpeed,
    newAnswer,
    newProgress,
    prefillEta,
    tokensText,
} from '#web/answer.js';
import { beginnings, fitContext } from '#web/context.js';
import {
    exportJson,
    findIn,
    importJson,
    newConversation,
    setField,
    titleOf,
} from '#web/conversation.js';
import { readdirSync, readFileSync } from 'node:fs';
import { bytes, duration, percent, speed } from '#web/format.js';
import { groupOf, grouped } from '#web/groups.js';
import { highlight } from '#web/highlight.js';
import { safeAddress } from '#web/inline.js';
import { local } from '#web/local.js';
import { parseMarkdown } from '#web/markdown.js';
import { parseMath } from '#web/math.js';
import { mergeConversation, plainCopy } from '#web/merge.js';
import { ceiling } from '#web/plot.js';
import { asCurl, DEFAULTS, requestBody, withFiles } from '#web/request.js';
import { readEvents } from '#web/sse.js';
import { startersFor } from '#web/starters.js';
import {
    addNode,
    isFailed,
    newTree,
    pathTo,
    ROOT,
    shownPath,
    siblings,
    switchBranch,
} from '#web/tree.js';

globalThis.crypto ??= webcrypto; // Node 18 has it only here

// ---- markdown ----

// Blocks without their sources; inline text as a string: *em*, **strong**, `code`, {text|address}.
const marks = { strong: '**', em: '*', del: '~~' };
const flat = (inline) =>
    inline
        .map((n) =>
            n.type === 'break'
                ? '/'
                : n.type === 'code'
                  ? `\`${n.text}\``
                  : n.type === 'link'
                    ? `{${flat(n.inline)}|${n.address}}`
                    : n.inline
                      ? marks[n.type] + flat(n.inline) + marks[n.type]
                      : n.text,
        )
        .join('');
const inline = (text) => flat(parseMarkdown(text)[0].inline);
const shape = (blocks) =>
    blocks.map((b) =>
        b.inline
            ? [b.type, flat(b.inline)]
            : b.blocks
              ? [b.type, ...shape(b.blocks)]
              : b.items
                ? [b.ordered ? 'ol' : 'ul', ...b.items.map((item) => shape(item.blocks))]
                : [b.type, b.text],
    );

test('markdown: emphasis nests, and stays text where it is not closed', () => {
    assert.equal(inline('a **b *c* d** e'), 'a **b *c* d** e');
    assert.equal(inline('***both***'), '***both***');
    assert.equal(inline('snake_case_name and _word_'), 'snake_case_name and *word*');
    assert.equal(inline('2 * 3 * 4 and **open'), '2 * 3 * 4 and **open');
    assert.equal(inline('~~gone~~ ~one~'), '~~gone~~ ~one~');
    assert.equal(inline('\\*not\\* `a*b*`'), '*not* `a*b*`');
    assert.equal(inline('``a`b`` `open'), '`a`b` `open');
    assert.equal(inline('one\ntwo'), 'one/two');
});

test('markdown: HTML is text', () => {
    const text = '<img src=x onerror=alert(1)> <script>alert(1)</script> &lt;';
    assert.equal(inline(text), text);
});

test('markdown: only web and mail addresses become links, images become links', () => {
    assert.equal(inline('[a](https://x.org/y "t")'), '{a|https://x.org/y}');
    assert.equal(inline('![a](https://x.org/y_(z).png)'), '{a|https://x.org/y_(z).png}');
    assert.equal(
        inline('see https://x.org/a_b_c.'),
        'see {https://x.org/a_b_c|https://x.org/a_b_c}.',
    );
    assert.equal(inline('[**https://a.b/**](https://x.org/)'), '{**https://a.b/**|https://x.org/}');
    assert.equal(inline('[a [b](http://x.y/)](no)'), '[a {b|http://x.y/}](no)');
    assert.equal(inline('<mailto:a@b.org>'), '{mailto:a@b.org|mailto:a@b.org}');
    for (const bad of [
        'javascript:alert(1)',
        'JaVaScRiPt:alert(1)',
        'data:text/html,x',
        '//x.org',
        '/v1/models',
        'file:///etc/passwd',
        'vbscript:x',
        'https:x',
        '\u0001javascript:alert(1)',
    ]) {
        assert.equal(safeAddress(bad), null, bad);
        assert.equal(inline(`[a](${bad})`).includes('|'), false, bad);
    }
});

test('markdown: blocks', () => {
    assert.deepEqual(
        shape(parseMarkdown('# T #\n\npara\n---\n> q\n> r\n\n```js\nif (a) {\n\n}\n```\nafter')),
        [
            ['heading', 'T'],
            ['paragraph', 'para'],
            ['rule', undefined],
            ['quote', ['paragraph', 'q/r']],
            ['code', 'if (a) {\n\n}'],
            ['paragraph', 'after'],
        ],
    );
    assert.deepEqual(shape(parseMarkdown('- a\n- b\n  1. c\n  2. d\n- e\n\ntext')), [
        [
            'ul',
            [['paragraph', 'a']],
            [
                ['paragraph', 'b'],
                ['ol', [['paragraph', 'c']], [['paragraph', 'd']]],
            ],
            [['paragraph', 'e']],
        ],
        ['paragraph', 'text'],
    ]);
    const [list] = parseMarkdown('1. a\n\n   ```\n   x\n   ```\n2. b');
    assert.deepEqual(shape(list.items[0].blocks), [
        ['paragraph', 'a'],
        ['code', 'x'],
    ]);
    assert.equal(list.items.length, 2);
    assert.deepEqual(
        parseMarkdown('- [x] a\n- [ ] b')[0].items.map((i) => i.checked),
        [true, false],
    );
});

test('markdown: a fence that is still open is code already', () => {
    assert.deepEqual(shape(parseMarkdown('```c\nint')), [['code', 'int']]);
});

test('markdown: tables', () => {
    const [table] = parseMarkdown('| a | b |\n|:-:|--:|\n| `x|y` | c\\|d |\n|  | z |\n\nno');
    assert.deepEqual(
        [table.type, table.align, table.head.map(flat)],
        ['table', ['center', 'right'], ['a', 'b']],
    );
    assert.deepEqual(
        table.rows.map((r) => r.map(flat)),
        [
            ['`x|y`', 'c|d'],
            ['', 'z'],
        ],
    );
});

test('markdown: a block has the source it came from', () => {
    assert.deepEqual(
        parseMarkdown('a\nb\n\n- c\n- d\n').map((b) => b.source),
        ['a\nb', '- c\n- d'],
    );
});

test('markdown: hostile repetitions take little time and no deep stack', () => {
    const began = Date.now();
    for (const bit of [
        '*a ',
        '**',
        '[',
        '![',
        '](',
        '`',
        '`` ` ',
        '> ',
        '- ',
        '1. ',
        '_a*',
        '~~a',
        '<',
        'https://',
        '|',
        '# ',
        '[a](',
        '*[',
        '> - ',
        '  - ',
        '```\n',
        '|-|\n',
        '\\',
        '\t',
        '- [x] ',
        '*_',
        '[](http://x.y)',
        '$',
        '$$',
        '$a',
        '\\(',
        '\\[',
        '$$\n',
    ]) {
        parseMarkdown(bit.repeat(20_000));
        parseMarkdown(`${bit}\n`.repeat(5_000));
        parseMarkdown(Array.from({ length: 500 }, (_, i) => ' '.repeat(i) + bit).join('\n'));
    }
    assert.ok(Date.now() - began < 60_000, `${Date.now() - began} ms`);
});

// ---- server-sent events ----

async function events(...pieces) {
    const bytes = pieces.map((p) => (typeof p === 'string' ? new TextEncoder().encode(p) : p));
    const body = new ReadableStream({
        start(c) {
            bytes.forEach((b) => c.enqueue(b));
            c.close();
        },
    });
    const all = [];
    for await (const data of readEvents(body)) all.push(data);
    return all;
}

test('sse: any line end, comments, several data lines, no blank after the colon', async () => {
    assert.deepEqual(
        await events('data: a\n\ndata:b\r\n\r\n: hello\nevent: x\ndata: c\ndata: d\r\rid: 1\n\n'),
        ['a', 'b', 'c\nd'],
    );
});

test('sse: every way to cut the bytes gives the same events', async () => {
    const bytes = new TextEncoder().encode('data: é\r\n\r\ndata: 😀x\r\n\r\n');
    for (let i = 0; i <= bytes.length; i++) {
        for (let j = i; j <= bytes.length; j++) {
            assert.deepEqual(
                await events(bytes.slice(0, i), bytes.slice(i, j), bytes.slice(j)),
                ['é', '😀x'],
                `${i} ${j}`,
            );
        }
    }
});

test('sse: an event that the end cut off is dropped, one that never ends is refused', async () => {
    assert.deepEqual(await events('data: a\n\ndata: b'), ['a']);
    await assert.rejects(events(`data: ${'x'.repeat(5 << 20)}`), /without an end/);
    await assert.rejects(events(`data: ${'x'.repeat(1000)}\n`.repeat(5000)), /without an end/);
});

// ---- the tree ----

test('tree: siblings are branches, switching shows the other one', () => {
    const nodes = newTree();
    const q = addNode(nodes, ROOT, { role: 'user', content: 'q' });
    const a = addNode(nodes, q.id, { role: 'assistant', content: 'a' });
    const b = addNode(nodes, q.id, { role: 'assistant', content: 'b' });
    const c = addNode(nodes, b.id, { role: 'user', content: 'c' });
    const shown = () =>
        shownPath(nodes)
            .map((n) => n.content)
            .join('');
    assert.equal(shown(), 'qbc');
    assert.equal(switchBranch(nodes, b.id, -1), a.id);
    assert.equal(shown(), 'qa');
    assert.equal(switchBranch(nodes, a.id, -1), a.id);
    switchBranch(nodes, a.id, 1);
    assert.equal(shown(), 'qbc'); // what was below is still chosen
    assert.deepEqual(siblings(nodes, b.id), { ids: [a.id, b.id], index: 1 });
    assert.deepEqual(
        pathTo(nodes, c.id).map((n) => n.content),
        ['q', 'b', 'c'],
    );
    assert.throws(() => addNode(nodes, 'none', {}), /no message/);
    assert.throws(() => addNode(nodes, ROOT, { id: a.id }), /two messages/);
});

// ---- files ----

function sample() {
    const c = newConversation({ system: 'Be brief.', temperature: 0.5 });
    c.title = 'T';
    const q = addNode(c.nodes, ROOT, { role: 'user', content: 'Hello <b>' });
    const a = addNode(c.nodes, q.id, { ...newAnswer('one'), stats: { answer: 3, seed: 7 } });
    addNode(c.nodes, q.id, {
        ...newAnswer('two'),
        toolCalls: [{ id: 'x', name: 'f', arguments: '{}' }],
        stats: {},
    });
    switchBranch(c.nodes, c.nodes.get(q.id).chosen, -1);
    delete a.tokens;
    return c;
}

test('conversation: export and import give the same conversation', () => {
    const c = sample();
    const [back] = importJson(exportJson([c]));
    for (const node of c.nodes.values()) delete node.tokens;
    assert.deepEqual(back, c);
    assert.equal(shownPath(back.nodes).at(-1).content, 'one');
});

test('conversation: hostile files are refused with a reason, or lose what is not known', () => {
    const file = (change) => {
        const f = JSON.parse(exportJson([sample()]));
        change(f);
        return JSON.stringify(f);
    };
    assert.throws(() => importJson('{'), /not a JSON file/);
    assert.throws(() => importJson('null'), /does not contain conversations/);
    assert.throws(
        () =>
            importJson(
                file((f) => {
                    f.version = 9;
                }),
            ),
        /version 9/,
    );
    assert.throws(
        () =>
            importJson(
                file((f) => {
                    f.conversations = {};
                }),
            ),
        /no list/,
    );
    assert.throws(
        () =>
            importJson(
                file((f) => {
                    f.conversations[0].messages[0].role = 'root';
                }),
            ),
        /unknown role/,
    );
    assert.throws(
        () =>
            importJson(
                file((f) => {
                    f.conversations[0].messages[1].content = {};
                }),
            ),
        /no text/,
    );
    assert.throws(
        () =>
            importJson(
                file((f) => {
                    f.conversations[0].messages[1].parent = 'nobody';
                }),
            ),
        /no message/,
    );
    assert.throws(
        () =>
            importJson(
                file((f) => {
                    f.conversations[0].messages[1].id = ROOT;
                }),
            ),
        /two messages/,
    );
    const [odd] = importJson(
        file((f) => {
            const [c] = f.conversations;
            c.settings = { temperature: 'hot', top_p: 7, __proto__: { polluted: 1 }, tools: 3 };
            c.messages[1].toolCalls = 'x';
            c.messages[1].extra = 1;
            c.chosen = 'nobody';
        }),
    );
    assert.deepEqual(odd.settings, DEFAULTS);
    const answer = [...odd.nodes.values()].find((n) => n.content === 'one');
    assert.deepEqual([answer.toolCalls, answer.extra], [[], undefined]);
});

test('conversation: search looks at titles, files and every branch, and quotes what it found', () => {
    const c = sample();
    addNode(c.nodes, ROOT, {
        role: 'user',
        content: '',
        files: [{ name: 'f', text: 'in a file' }],
    });
    const found = (words) => findIn(c, words)?.snippet?.match;
    assert.deepEqual(['TWO', 'hello', 'a file', 'three'].map(found), [
        'two',
        'Hello',
        'a file',
        undefined,
    ]);
    assert.deepEqual([findIn(c, 't')?.snippet?.match, findIn(c, 'three')], ['t', null]);
    const long = newConversation({});
    addNode(long.nodes, ROOT, {
        role: 'user',
        content: `${'a '.repeat(60)}WORD${' b'.repeat(60)}`,
    });
    const { before, match, after } = findIn(long, 'word').snippet;
    assert.ok(before.length < 50 && before.startsWith('…') && after.endsWith('…'), before + after);
    assert.equal(match, 'WORD');
});

test('conversation: the title follows the question that is shown, unless it was given', () => {
    const c = newConversation({});
    assert.equal(titleOf(c), 'New chat');
    const first = addNode(c.nodes, ROOT, { role: 'user', content: 'First\nline' });
    addNode(c.nodes, ROOT, { role: 'user', content: 'Edited' });
    assert.equal(titleOf(c), 'Edited');
    switchBranch(c.nodes, c.nodes.get(ROOT).chosen, -1);
    assert.equal(c.nodes.get(ROOT).chosen, first.id);
    assert.equal(titleOf(c), 'First');
    setField(c, 'title', 'Mine');
    assert.equal(titleOf(c), 'Mine');
});

// ---- two copies of a conversation ----

test('merge: messages of both are there, the later version of each counts', () => {
    const ours = newConversation({});
    const q = addNode(ours.nodes, ROOT, { role: 'user', content: 'q', created: 1, changed: 1 });
    const a = addNode(ours.nodes, q.id, { ...newAnswer('half'), created: 2, changed: 2 });
    const theirs = plainCopy(ours);
    Object.assign(theirs.nodes.get(a.id), { content: 'whole', changed: 3 });
    const other = { role: 'user', content: 'their question', created: 4, changed: 4 };
    addNode(theirs.nodes, a.id, other);
    const mine = addNode(ours.nodes, a.id, { role: 'user', content: 'mine', created: 5 });
    setField(theirs, 'pinned', true);
    assert.equal(mergeConversation(ours, theirs), true);
    assert.deepEqual(
        ours.nodes.get(a.id).children.map((id) => ours.nodes.get(id).content),
        ['their question', 'mine'],
    );
    assert.deepEqual([ours.nodes.get(a.id).content, ours.pinned], ['whole', true]);
    assert.equal(shownPath(ours.nodes).at(-1), mine); // what is shown here stays
    assert.equal(mergeConversation(ours, theirs), false);
    assert.equal(mergeConversation(theirs, ours), true);
    assert.deepEqual([...theirs.nodes.keys()].sort(), [...ours.nodes.keys()].sort());
});

test('merge: a copy that says otherwise about parents makes no circle', () => {
    const tree = (...pairs) => {
        const c = newConversation({});
        for (const [id, parent] of pairs)
            addNode(c.nodes, parent, { id, role: 'user', content: id });
        return c;
    };
    const ours = tree(['a', ROOT], ['b', 'a']);
    mergeConversation(ours, tree(['b', ROOT], ['a', 'b']));
    assert.deepEqual(
        shownPath(ours.nodes).map((n) => n.id),
        ['a', 'b'],
    );
});

test('merge: importing a file twice adds nothing', () => {
    const c = sample();
    assert.equal(mergeConversation(c, importJson(exportJson([c]))[0]), false);
});

test('tree: a try that brought nothing is no branch', () => {
    const nodes = newTree();
    const a = addNode(nodes, ROOT, newAnswer());
    assert.equal(isFailed(a), true);
    assert.equal(isFailed(Object.assign(a, { content: 'x' })), false);
    assert.equal(isFailed(Object.assign(a, { error: 'broken' })), true);
    addNode(nodes, a.id, { role: 'user', content: 'q' });
    assert.equal(isFailed(a), false);
});

test('groups: pinned first, then by day', () => {
    const now = new Date(2026, 4, 20, 9).getTime();
    const at = (...day) => ({ changed: new Date(...day).getTime() });
    const names = [
        at(2026, 4, 20, 1),
        at(2026, 4, 19, 23),
        at(2026, 4, 14),
        at(2026, 4, 1),
        at(2026, 1, 3),
        { ...at(2020, 1, 3), pinned: true },
    ].map((c) => groupOf(c, now));
    assert.deepEqual(names, [
        'Today',
        'Yesterday',
        'Previous 7 days',
        'Previous 30 days',
        'February 2026',
        'Pinned',
    ]);
    const [[first, [pinned]], [, today]] = grouped(
        [at(2026, 4, 20, 1), at(2026, 4, 20, 2), { ...at(2020, 1, 1), pinned: true }],
        now,
    );
    assert.deepEqual([first, pinned.pinned], ['Pinned', true]);
    assert.ok(today[0].changed > today[1].changed);
});

test('local: where site data is blocked, values are kept in memory', () => {
    assert.equal(typeof localStorage === 'undefined' || localStorage === null, true);
    assert.equal(local.get('a'), null);
    local.setJson('a', { b: 1 });
    assert.deepEqual(local.getJson('a', 0), { b: 1 });
    local.set('a', '{');
    assert.equal(local.getJson('a', 0), 0);
});

test('starters fit the model', () => {
    assert.ok(startersFor({ builtin: true }).includes('27+48='));
    assert.ok(!startersFor({ builtin: false, has_template: true }).includes('27+48='));
    assert.deepEqual(startersFor({ has_template: false })[0], 'Once upon a time');
});

// ---- code and formulas ----

const kinds = (text, lang) => highlight(text, lang).filter(([kind]) => kind);

test('highlight: comments, strings, numbers and keywords, by language', () => {
    assert.deepEqual(kinds('if (a) return "x\\"y"; // c 1', 'c'), [
        ['keyword', 'if'],
        ['keyword', 'return'],
        ['string', '"x\\"y"'],
        ['comment', '// c 1'],
    ]);
    assert.deepEqual(kinds("def f(): # no\n  '''m\nn''' 3.5e2", 'Python'), [
        ['keyword', 'def'],
        ['comment', '# no'],
        ['string', "'''m\nn'''"],
        ['number', '3.5e2'],
    ]);
    assert.deepEqual(kinds('ls $# # c', 'sh'), [['comment', '# c']]);
    assert.deepEqual(
        kinds('SELECT a -- c', 'sql').map(([k]) => k),
        ['keyword', 'comment'],
    );
    assert.deepEqual(kinds('<!-- c --><b>', 'html'), [
        ['comment', '<!-- c -->'],
        ['keyword', '<b'],
        ['keyword', '>'],
    ]);
    assert.deepEqual(kinds('if x "s"', 'unheard-of'), [['string', '"s"']]);
    for (const text of ['a "b', '/* open', "'''", '`', '\\', 'é=1;\n\t"ü"'])
        for (const lang of ['js', 'python', 'html', ''])
            assert.equal(
                highlight(text, lang)
                    .map(([, part]) => part)
                    .join(''),
                text,
            );
});

const mathText = (node) =>
    typeof node === 'string' ? node : `${node[0]}(${node.slice(2).map(mathText).join(' ')})`;
const formula = (text) => mathText(parseMath(text, true));

test('math: LaTeX becomes MathML', () => {
    assert.equal(formula('\\frac{a}{b}'), 'mrow(mfrac(mi(a) mi(b)))');
    assert.equal(formula('\\frac12'), 'mrow(mfrac(mn(1) mn(2)))');
    assert.equal(formula('x_1^{2n}'), 'mrow(msubsup(mi(x) mn(1) mrow(mn(2) mi(n))))');
    assert.equal(formula("f'"), 'mrow(msup(mi(f) mo(′)))');
    assert.equal(
        formula('\\sum_{i=1}^n i'),
        'mrow(munderover(mo(∑) mrow(mi(i) mo(=) mn(1)) mi(n)) mi(i))',
    );
    assert.equal(formula('\\sqrt[3]{x}'), 'mrow(mroot(mi(x) mn(3)))');
    assert.equal(formula('\\text{if } \\mathbb{R}'), 'mrow(mtext(if ) mi(ℝ))');
    assert.equal(
        formula('\\begin{pmatrix}a&b\\\\c&d\\end{pmatrix}'),
        'mrow(mrow(mo(() mtable(mtr(mtd(mi(a)) mtd(mi(b))) mtr(mtd(mi(c)) mtd(mi(d)))) mo())))',
    );
    assert.equal(formula('\\left(x\\right]'), 'mrow(mrow(mo(() mi(x) mo(])))');
    const [, , , minus] = parseMath('=-1', true);
    assert.equal(minus[1].form, 'prefix');
    assert.equal(formula('\\nonsense{x}'), 'mrow(mtext(\\nonsense) mi(x))');
});

test('math: unfinished and hostile formulas take little time and no deep stack', () => {
    const began = Date.now();
    const bits = [
        '{',
        '}',
        '^',
        '_',
        '\\frac',
        '\\left(',
        '\\begin{a}',
        '\\sqrt[',
        '&',
        '\\\\',
        'x^{',
    ];
    for (const bit of [...bits, "'", '\\text{', '\\begin{pmatrix}', '\\mathbb', '[', '\\', '\\end'])
        parseMath(bit.repeat(2000), true);
    assert.ok(Date.now() - began < 60_000, `${Date.now() - began} ms`);
});

test('markdown: formulas in a line and on their own; prices and escapes stay text', () => {
    const nodes = (text) => parseMarkdown(text)[0].inline.filter((n) => n.type === 'math');
    assert.deepEqual(
        nodes('so $x^2$ and \\(y\\) and $$z$$').map((n) => [n.text, n.display]),
        [
            ['x^2', false],
            ['y', false],
            ['z', true],
        ],
    );
    for (const text of ['it costs $5 or $6', 'a $ b $ c', '\\$x\\$', '$ x$', '\\(open', '$5'])
        assert.deepEqual(nodes(text), [], text);
    assert.equal(parseMarkdown('`$x$`')[0].inline[0].type, 'code');
    const blocks = parseMarkdown('a\n$$\nx\n= y\n$$\nb\n\\[ z \\]');
    assert.deepEqual(
        blocks.map((b) => [b.type, b.text]),
        [
            ['paragraph', undefined],
            ['math', 'x\n= y'],
            ['paragraph', undefined],
            ['math', 'z'],
        ],
    );
    assert.equal(parseMarkdown('$$ open')[0].type, 'paragraph');
});

test('request: files go before the words about them, in fences that they cannot end', () => {
    const said = withFiles({ content: 'Why?', files: [{ name: 'a.txt', text: 'x\n````\ny\n' }] });
    assert.equal(said, 'a.txt:\n`````\nx\n````\ny\n`````\n\nWhy?');
    assert.equal(withFiles({ content: 'q' }), 'q');
});

// ---- the files of the page ----

const web = new URL('./web/', import.meta.url);
const files = readdirSync(web);
const source = (name) => readFileSync(new URL(name, web), 'utf8');

test('the service worker keeps every file of the page', () => {
    const kept = [...source('sw.js').matchAll(/^ {4}'\/(.*)',$/gm)].map(([, name]) => name);
    const own = files.filter((f) => !['sw.js', 'index.html', 'openapi.json'].includes(f));
    assert.deepEqual(kept.sort(), ['', ...own].sort());
});

test('sizes of text are relative to the browser’s', () => {
    for (const name of files.filter((f) => f.endsWith('.css')))
        assert.doesNotMatch(source(name), /font(-size)?:[^;]*\d(px|pt)/, name);
});

// ---- requests and answers ----

test('request: only what is set is sent, the seed always', () => {
    const path = [
        { role: 'user', content: 'q' },
        {
            role: 'assistant',
            content: '',
            reasoning: 'r',
            toolCalls: [{ id: 'i', name: 'f', arguments: '{}' }],
        },
        { role: 'tool', toolCallId: 'i', content: '5' },
    ];
    const body = requestBody(
        { ...DEFAULTS, system: 's', top_k: 4, stop: 'a\n\nb', tools: '[]', thinking: 'off' },
        path,
        { model: 'm', seed: 9 },
    );
    assert.deepEqual(body.messages, [
        { role: 'system', content: 's' },
        { role: 'user', content: 'q' },
        {
            role: 'assistant',
            content: '',
            reasoning_content: 'r',
            tool_calls: [{ id: 'i', type: 'function', function: { name: 'f', arguments: '{}' } }],
        },
        { role: 'tool', content: '5', tool_call_id: 'i' },
    ]);
    assert.deepEqual(
        [
            body.top_k,
            body.seed,
            body.stop,
            body.tools,
            body.logprobs,
            'temperature' in body,
            'continue_final_message' in body,
        ],
        [4, 9, ['a', 'b'], [], true, false, false],
    );
    assert.equal(body.chat_template_kwargs.enable_thinking, false);
    assert.equal(requestBody({ ...DEFAULTS, seed: 3 }, [], { seed: 9 }).seed, 3);
    assert.throws(() => requestBody({ ...DEFAULTS, tools: '{' }, [], {}), /tools.* not JSON/);
    const form = (format, schema) =>
        requestBody({ ...DEFAULTS, format, schema }, [], {}).response_format;
    assert.equal(form('', '{}'), undefined);
    assert.deepEqual(form('json', ''), { type: 'json_object' });
    assert.deepEqual(form('schema', '{"type":"string"}').json_schema.schema, { type: 'string' });
    assert.throws(() => form('schema', '{'), /schema.* not JSON/);
});

test('request: the curl command survives quotes and never has the key', () => {
    const said = asCurl('http://h', { a: "it's $(x) `y`" }, true);
    assert.match(said, /'\{\n {2}"a": "it'\\''s \$\(x\) `y`"\n\}'$/);
    assert.match(said, /Bearer \$FLETCH_API_KEY"/);
    assert.doesNotMatch(asCurl('http://h', {}, false), /Bearer/);
});

test('answer: chunks add up to text, thoughts, tool calls, tokens and figures', () => {
    const message = newAnswer(),
        progress = newProgress(0);
    const entry = (token, logprob) => ({
        token,
        logprob,
        bytes: [...Buffer.from(token)],
        top_logprobs: [{ token: 'z', logprob: -1, bytes: [122] }],
    });
    const chunks = [
        { choices: [], fletch: { queue_position: 2 } },
        {
            choices: [],
            fletch: { prompt_done: 40, prompt_total: 100, cached: 40, reuse_end: 'why' },
        },
        { choices: [], fletch: { prompt_done: 70, prompt_total: 100, cached: 40 } },
        {
            choices: [
                { delta: { reasoning_content: 'hm' }, logprobs: { content: [entry('hm', -0.1)] } },
            ],
        },
        { choices: [{ delta: { content: 'a' }, logprobs: { content: [entry('a', -0.2)] } }] },
        { choices: [{ delta: { content: 'b' } }] },
        {
            choices: [
                {
                    delta: {
                        tool_calls: [
                            { index: 0, id: 'i', function: { name: 'f', arguments: '{"x"' } },
                        ],
                    },
                },
            ],
        },
        { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: ':1}' } }] } }] },
        { choices: [{ delta: {}, finish_reason: 'tool_calls' }] },
        {
            choices: [],
            usage: {
                prompt_tokens: 100,
                completion_tokens: 5,
                prompt_tokens_details: { cached_tokens: 40 },
            },
            fletch: { queue_ms: 1, prefill_ms: 2, decode_ms: 3, tokens_per_s: 4 },
        },
    ];
    chunks.forEach((chunk, i) => {
        addChunk(message, progress, chunk, 100 * i);
        if (i === 0) assert.equal(progress.queue, 2);
        if (i === 1) assert.deepEqual([progress.queue, prefillEta(progress, 100)], [null, null]);
        // 30 tokens took 100 ms, 30 are left
        if (i === 2) assert.equal(prefillEta(progress, 200), 100);
    });
    assert.deepEqual(
        [message.content, message.reasoning, message.toolCalls, message.finish],
        ['ab', 'hm', [{ id: 'i', name: 'f', arguments: '{"x":1}' }], 'tool_calls'],
    );
    assert.deepEqual(
        message.tokens.map((t) => [t.text, t.part, t.top.length]),
        [
            ['hm', 'reasoning', 1],
            ['a', 'content', 1],
        ],
    );
    assert.deepEqual(message.stats, {
        cached: 40,
        reuseEnd: 'why',
        prompt: 100,
        answer: 5,
        queue_ms: 1,
        prefill_ms: 2,
        decode_ms: 3,
        tokens_per_s: 4,
    });
    assert.equal(answerSpeed({ firstAt: 0, n: 11 }, 1000), 10);
});

test('answer: text of tokens that share a character; an alternative within one is refused', () => {
    const bytes = [...Buffer.from('é')];
    const half = { text: '\ufffd', bytes: [bytes[0]] },
        rest = { text: '\ufffd', bytes: [bytes[1]] };
    assert.equal(tokensText([{ text: 'a' }, half, rest]), 'aé');
    assert.equal(tokensText([half]), null);
    const tokens = [
        { text: 'no', part: 'reasoning', top: [] },
        { text: 'a', part: 'content', top: [] },
        { text: 'b', part: 'content', top: [{ text: 'c', logprob: -1 }, half] },
    ];
    assert.equal(alternativeStart({ tokens }, 2, 0).content, 'ac');
    assert.equal(alternativeStart({ tokens }, 2, 1), null);
});

// ---- context ----

test('context: the oldest exchanges go first, the last one never', async () => {
    const path = ['user', 'assistant', 'user', 'assistant', 'tool', 'assistant', 'user'].map(
        (role) => ({ role }),
    );
    let asked = 0;
    const countTokens = async (part) => {
        asked++;
        return part.length * 10;
    };
    assert.deepEqual(beginnings(path), [0, 2, 6]);
    assert.deepEqual(await fitContext(path, countTokens, 100), {
        dropped: 0,
        total: 70,
        tokens: 70,
    });
    assert.deepEqual(await fitContext(path, countTokens, 60), {
        dropped: 2,
        total: 70,
        tokens: 50,
    });
    assert.deepEqual(await fitContext(path, countTokens, 45), {
        dropped: 6,
        total: 70,
        tokens: 10,
    });
    assert.deepEqual(await fitContext(path, countTokens, 1), { dropped: 6, total: 70, tokens: 10 });
    assert.deepEqual(await fitContext(path.slice(0, 2), countTokens, 1), {
        dropped: 0,
        total: 20,
        tokens: 20,
    });
    const long = Array.from({ length: 2000 }, (_, i) => ({ role: i % 2 ? 'assistant' : 'user' }));
    asked = 0;
    assert.equal((await fitContext(long, countTokens, 505)).dropped, 1950);
    assert.ok(asked < 16, `asked ${asked} times`);
});

test('figures are said shortly', () => {
    const said = [12, 940, 960, 9940, 12_300, 61_000, 7_500_000].map(duration);
    assert.deepEqual(said, ['12 ms', '940 ms', '1.0 s', '9.9 s', '12 s', '1 min 1 s', '2 h 5 min']);
    const shares = [1, 0.5, 0.0996, 0.055, 0.0001, 0].map(percent);
    assert.deepEqual(shares, ['100 %', '50 %', '10 %', '5.5 %', '< 0.1 %', '0 %']);
    assert.deepEqual([5, 1500, 24e6, 4.7e9].map(bytes), ['5 B', '1.5 KB', '24 MB', '4.7 GB']);
    assert.deepEqual([0, 9.94, 1234].map(speed), ['0 tokens/s', '9.9 tokens/s', '1,234 tokens/s']);
    assert.deepEqual([0, 1, 3, 70, 130].map(ceiling), [1, 1, 5, 100, 200]);
});
