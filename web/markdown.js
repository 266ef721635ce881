// Reads the Markdown that models write into plain objects: headings, paragraphs, lists, quotes,
// code, tables, formulas. There is no HTML in it: `<b>` is text. The text is hostile, so nesting is
// bounded. Inline text is read by inline.js; markdown-view.js makes elements of it all.
import { parseInline } from './inline.js';

const MAX_DEPTH = 8; // of quotes and lists; deeper ones are shown as text

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:\*[ \t]*){3,}$|^ {0,3}(?:-[ \t]*){3,}$|^ {0,3}(?:_[ \t]*){3,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

// A line that opens a formula of its own, which may go on over several lines.
const FORMULA = /^ {0,3}(\$\$|\\\[)/;
const CLOSE = { $$: '$$', '\\[': '\\]' };
const MAX_LINES = 60; // of a formula

const isBlank = (line) => line.trim() === '';
const startsBlock = (line) =>
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    FORMULA.test(line) ||
    ITEM.test(line);

function readCode(lines, at) {
    const [, fence, info] = FENCE.exec(lines[at]);
    const indent = lines[at].search(/\S/);
    const text = [];
    let i = at + 1;
    for (; i < lines.length; i++) {
        const line = lines[i].trim();
        if (line.length >= fence.length && line === fence[0].repeat(line.length)) break;
        text.push(lines[i].slice(Math.min(indent, Math.max(0, lines[i].search(/\S|$/)))));
    }
    return {
        end: Math.min(i + 1, lines.length),
        type: 'code',
        lang: info.trim().split(/\s+/)[0],
        text: text.join('\n'),
    };
}

function readQuote(lines, at, depth) {
    let end = at;
    while (end < lines.length && QUOTE.test(lines[end])) end++;
    const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ''));
    return { end, type: 'quote', blocks: readBlocks(inner, depth + 1) };
}

// The lines of one item, their indentation taken away. A blank line belongs to it when what follows
// does.
function readItem(lines, at) {
    const [mark, , , space] = ITEM.exec(lines[at]);
    const width = mark.length - Math.max(0, space.length - 4);
    const inner = [lines[at].slice(width)];
    let i = at + 1;
    for (; i < lines.length; i++) {
        const line = lines[i];
        if (isBlank(line)) {
            const next = lines.slice(i, i + 3).find((l) => !isBlank(l));
            if (next === undefined || next.search(/\S/) < width) break;
            inner.push('');
        } else if (line.search(/\S/) >= width) inner.push(line.slice(width));
        else if (startsBlock(line) || isBlank(lines[i - 1])) break;
        else inner.push(line.trimStart());
    }
    return { end: i, inner };
}

function readList(lines, at, depth) {
    const kind = (mark) => mark.at(-1); // - * + . )
    const [, , first] = ITEM.exec(lines[at]);
    const list = {
        type: 'list',
        ordered: /\d/.test(first),
        start: parseInt(first, 10),
        items: [],
        loose: false,
    };
    let i = at;
    for (;;) {
        const { end, inner } = readItem(lines, i);
        const task = /^\[([ xX])\][ \t]+/.exec(inner[0]);
        if (task) inner[0] = inner[0].slice(task[0].length);
        list.items.push({
            checked: task ? task[1] !== ' ' : null,
            blocks: readBlocks(inner, depth + 1),
        });
        let next = end;
        while (next < lines.length && isBlank(lines[next])) next++;
        const mark = next < lines.length && !RULE.test(lines[next]) && ITEM.exec(lines[next]);
        i = end;
        if (!mark || kind(mark[2]) !== kind(first) || next - end > 2) break;
        list.loose ||= next > end;
        i = next;
    }
    return { ...list, end: i };
}

// Cells are split at bars outside of code and not escaped.
function tableCells(line) {
    const inner = line
        .trim()
        .replace(/^\|/, '')
        .replace(/(?<!\\)\|$/, '');
    const cells = inner.match(/(?:\\.|`[^`]*`|[^|\\]|\\$)+|(?<=\||^)(?=\||$)/g) ?? [''];
    return cells.map((cell) => parseInline(cell.trim().replaceAll('\\|', '|')));
}

function readTable(lines, at) {
    const align = lines[at + 1]
        .trim()
        .replace(/^\||\|$/g, '')
        .split('|')
        .map((rule) => {
            const [left, right] = [rule.trim().startsWith(':'), rule.trim().endsWith(':')];
            return right ? (left ? 'center' : 'right') : null;
        });
    const rows = [];
    let end = at + 2;
    for (; end < lines.length && lines[end].includes('|') && !isBlank(lines[end]); end++)
        rows.push(tableCells(lines[end]));
    return { end, type: 'table', align, head: tableCells(lines[at]), rows };
}

const isTable = (lines, i) =>
    lines[i].includes('|') &&
    i + 1 < lines.length &&
    lines[i + 1].includes('-') &&
    lines[i + 1].includes('|') &&
    TABLE_RULE.test(lines[i + 1]);

function readParagraph(lines, at) {
    let end = at + 1;
    while (
        end < lines.length &&
        !isBlank(lines[end]) &&
        !startsBlock(lines[end]) &&
        !isTable(lines, end)
    )
        end++;
    return {
        end,
        type: 'paragraph',
        inline: parseInline(
            lines
                .slice(at, end)
                .map((l) => l.trimStart())
                .join('\n')
                .trimEnd(),
        ),
    };
}

// null where it does not end, or where more follows on its last line.
function readFormula(lines, at) {
    const [open, mark] = FORMULA.exec(lines[at]);
    const text = [lines[at].slice(open.length)];
    for (let i = at; i < lines.length && i < at + MAX_LINES; i++) {
        if (i > at) text.push(lines[i]);
        const end = text.at(-1).indexOf(CLOSE[mark]);
        if (end < 0) continue;
        if (!isBlank(text.at(-1).slice(end + 2))) return null;
        text.push(text.pop().slice(0, end));
        return { end: i + 1, type: 'math', text: text.join('\n').trim() };
    }
    return null;
}

function readBlock(lines, at, depth) {
    const line = lines[at];
    if (FENCE.test(line)) return readCode(lines, at);
    const formula = FORMULA.test(line) && readFormula(lines, at);
    if (formula) return formula;
    const heading = HEADING.exec(line);
    if (heading) {
        const text = heading[2].replace(/(^|[ \t])#+[ \t]*$/, '').trim();
        return {
            end: at + 1,
            type: 'heading',
            level: heading[1].length,
            inline: parseInline(text),
        };
    }
    if (RULE.test(line)) return { end: at + 1, type: 'rule' };
    if (depth < MAX_DEPTH && QUOTE.test(line)) return readQuote(lines, at, depth);
    if (depth < MAX_DEPTH && ITEM.test(line)) return readList(lines, at, depth);
    if (isTable(lines, at)) return readTable(lines, at);
    return readParagraph(lines, at);
}

function readBlocks(lines, depth) {
    const blocks = [];
    for (let at = 0; at < lines.length;) {
        if (isBlank(lines[at])) {
            at++;
            continue;
        }
        const { end, ...block } = readBlock(lines, at, depth);
        // What a block was read from tells whether it has to be shown anew while text streams in.
        blocks.push(depth === 0 ? { ...block, source: lines.slice(at, end).join('\n') } : block);
        at = end;
    }
    return blocks;
}

export const parseMarkdown = (text) =>
    readBlocks(text.replace(/\r\n?/g, '\n').replaceAll('\t', '    ').split('\n'), 0);
