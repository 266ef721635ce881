// Reads the inside of a paragraph: emphasis, code, links. Takes time linear in the text's length,
// nests a bounded number of times, and lets through only addresses that are safe to open.

const MAX_OPEN = 24; // emphasis and brackets that wait for their end; more are text
// (address "title"), where the address may have one pair of parentheses
const TARGET =
    /^\(\s{0,9}<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)?)>?(?:\s{1,9}"[^"]*")?\s{0,9}\)/;
const SPECIAL = /[\\`*_~[\]!<\n$]|https?:\/\//g;
// $x$, where neither end touches a blank and no digit follows: prices are no formulas
const DOLLARS = /\$(?![\s$])((?:[^\n$\\]|\\[^\n]){1,1000}?)(?<![\s\\])\$(?![\d$])/y;
const MAX_FORMULA = 4000; // characters

// Absolute web and mail addresses; everything else (javascript:, data:, file:) stays text.
export function safeAddress(text) {
    if (!/^(?:https?:\/\/|mailto:)[^\s\u0000-\u001f<>]+$/i.test(text) || text.length > 2048)
        return null;
    try {
        return new URL(text).href;
    } catch {
        return null;
    }
}

// A link's text may look like an address, but is no link of its own.
const withoutLinks = (nodes) =>
    nodes.flatMap((node) => {
        if (node.type === 'link') return node.inline;
        return node.inline ? [{ ...node, inline: withoutLinks(node.inline) }] : [node];
    });

class Inline {
    constructor(text) {
        this.text = text;
        this.nodes = [];
        this.open = []; // {mark, count, at: index in nodes}
        this.unclosed = new Set(); // lengths of backtick runs known to have no end
        this.closes = new Map(); // where the ends of formulas come next
    }

    say(text) {
        const last = this.nodes.at(-1);
        if (last?.type === 'text' && !last.mark) last.text += text;
        else if (text) this.nodes.push({ type: 'text', text });
    }

    // Takes the nodes from index `at` on. What was open among them is text now.
    take(at) {
        while (this.open.length && this.open.at(-1).at >= at) this.open.pop();
        return this.nodes.splice(at).map(({ mark, ...node }) => node);
    }

    code(at) {
        const run = /^`+/.exec(this.text.slice(at, at + 64))[0];
        let end = this.unclosed.has(run.length) ? -1 : at + run.length;
        while (end !== -1) {
            end = this.text.indexOf(run, end);
            if (end === -1 || this.text[end + run.length] !== '`') break;
            while (this.text[end] === '`') end++;
        }
        if (end === -1) {
            this.unclosed.add(run.length);
            this.say(run);
            return at + run.length;
        }
        const text = this.text.slice(at + run.length, end).replaceAll('\n', ' ');
        this.nodes.push({ type: 'code', text: /^ .*\S.* $/.test(text) ? text.slice(1, -1) : text });
        return end + run.length;
    }

    emphasis(at) {
        const mark = this.text[at];
        let end = at;
        while (this.text[end] === mark) end++;
        const before = this.text[at - 1] ?? ' ',
            after = this.text[end] ?? ' ';
        const inWord = /[\p{L}\p{N}]/u.test(before) && /[\p{L}\p{N}]/u.test(after);
        const usable = !(mark === '_' && inWord) && !(mark === '~' && end - at !== 2);
        let count = end - at;
        if (usable && /\S/.test(before)) count = this.close(mark, count);
        if (count && usable && /\S/.test(after) && this.open.length < MAX_OPEN) {
            this.open.push({ mark, count, at: this.nodes.length });
            this.nodes.push({ type: 'text', text: mark.repeat(count), mark });
        } else this.say(mark.repeat(count));
        return end;
    }

    // Ends emphasis that is open; returns how many marks are left over.
    close(mark, count) {
        while (count) {
            const found = this.open.findLastIndex((o) => o.mark === mark || o.mark === '[');
            if (found < 0 || this.open[found].mark === '[') break; // never across a link's bracket
            const opener = this.open[found];
            const n = Math.min(2, count, opener.count);
            if (mark === '~' && n < 2) break;
            const inner = this.take(opener.at);
            const left = opener.count - n;
            const head = inner.shift();
            if (left) {
                this.open.push({ ...opener, count: left });
                this.nodes.push({ ...head, text: mark.repeat(left), mark });
            }
            this.nodes.push({
                type: mark === '~' ? 'del' : n === 2 ? 'strong' : 'em',
                inline: inner,
            });
            count -= n;
        }
        return count;
    }

    bracket(at, length) {
        if (this.open.length < MAX_OPEN) {
            this.open.push({ mark: '[', count: 1, at: this.nodes.length });
            this.nodes.push({ type: 'text', text: this.text.slice(at, at + length), mark: '[' });
        } else this.say(this.text.slice(at, at + length));
        return at + length;
    }

    // `](address "title")` ends a link; an image is a link too: nothing is loaded from elsewhere.
    link(at) {
        const found = this.open.findLastIndex((o) => o.mark === '[');
        const target = found >= 0 && TARGET.exec(this.text.slice(at + 1, at + 2600));
        const address = target && safeAddress(target[1]);
        if (!address) {
            if (found >= 0) this.open.splice(found, 1);
            this.say(']');
            return at + 1;
        }
        const [, ...inner] = withoutLinks(this.take(this.open[found].at));
        this.open = this.open.filter((o) => o.mark !== '['); // no link around a link
        this.nodes.push({
            type: 'link',
            address,
            inline: inner.length ? inner : [{ type: 'text', text: address }],
        });
        return at + 1 + target[0].length;
    }

    bareAddress(at) {
        const found = /^https?:\/\/[^\s<>"'`[\]*]*/
            .exec(this.text.slice(at, at + 2048))[0]
            .replace(/[.,;:!?*_~)\]]+$/, '');
        const address = safeAddress(found);
        if (address)
            this.nodes.push({ type: 'link', address, inline: [{ type: 'text', text: found }] });
        else this.say(found);
        return at + found.length;
    }

    angle(at) {
        const found = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2048})>/i.exec(
            this.text.slice(at, at + 2060),
        );
        const address = found && safeAddress(found[1]);
        if (!address) {
            this.say('<');
            return at + 1;
        }
        this.nodes.push({ type: 'link', address, inline: [{ type: 'text', text: found[1] }] });
        return at + found[0].length;
    }

    // \(…\), or \[…\] and $$…$$ on their own; null: it does not end.
    delimited(at, open, close) {
        const from = at + open.length;
        const end = this.nextClose(close, from);
        if (end === from || end - from > MAX_FORMULA) return null;
        const text = this.text.slice(from, end).trim();
        this.nodes.push({ type: 'math', text, display: open !== '\\(' });
        return end + close.length;
    }

    // Where a mark comes next; each is looked for once.
    nextClose(mark, from) {
        let at = this.closes.get(mark) ?? -1;
        if (at < from) {
            at = this.text.indexOf(mark, from);
            if (at < 0) at = Infinity;
            this.closes.set(mark, at);
        }
        return at;
    }

    dollar(at) {
        const whole = this.text.startsWith('$$', at) && this.delimited(at, '$$', '$$');
        if (whole) return whole;
        DOLLARS.lastIndex = at;
        const found = DOLLARS.exec(this.text);
        if (!found) {
            this.say('$');
            return at + 1;
        }
        this.nodes.push({ type: 'math', text: found[1], display: false });
        return at + found[0].length;
    }

    special(at) {
        const c = this.text[at];
        switch (c) {
            case '$':
                return this.dollar(at);
            case '\\': {
                const next = this.text[at + 1] ?? '';
                const close = { '(': '\\)', '[': '\\]' }[next];
                const formula = close && this.delimited(at, `\\${next}`, close);
                if (formula) return formula;
                const escaped = /[!-/:-@[-`{-~]/.test(next);
                this.say(escaped ? next : '\\');
                return at + (escaped ? 2 : 1);
            }
            case '\n':
                this.nodes.push({ type: 'break' });
                return at + 1;
            case '`':
                return this.code(at);
            case '*':
            case '_':
            case '~':
                return this.emphasis(at);
            case '[':
                return this.bracket(at, 1);
            case '!':
                if (this.text[at + 1] === '[') return this.bracket(at, 2);
                this.say('!');
                return at + 1;
            case ']':
                return this.link(at);
            case '<':
                return this.angle(at);
            default:
                return this.bareAddress(at);
        }
    }

    parse() {
        for (let at = 0; at < this.text.length;) {
            SPECIAL.lastIndex = at;
            const next = SPECIAL.exec(this.text)?.index ?? this.text.length;
            this.say(this.text.slice(at, next));
            at = next < this.text.length ? this.special(next) : next;
        }
        return this.take(0);
    }
}

export const parseInline = (text) => new Inline(text).parse();
