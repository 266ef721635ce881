// Shows Markdown as elements. While text streams in, blocks whose source did not change keep their
// elements, so that a selection or a scrolled code block stays as it is.
import { copyText, el, iconButton } from './dom.js';
import { highlight } from './highlight.js';
import { mathNode } from './math-view.js';
import { parseMarkdown } from './markdown.js';

const inlineNodes = (inline) =>
    inline.map((node) => {
        switch (node.type) {
            case 'code':
                return el('code', {}, node.text);
            case 'strong':
            case 'em':
            case 'del':
                return el(node.type, {}, inlineNodes(node.inline));
            case 'break':
                return el('br');
            case 'math':
                return mathNode(node.text, node.display);
            case 'link':
                return el(
                    'a',
                    {
                        href: node.address,
                        target: '_blank',
                        rel: 'noopener noreferrer nofollow',
                        title: node.address,
                    },
                    inlineNodes(node.inline),
                );
            default:
                return node.text;
        }
    });

const MAX_COLOURED = 100_000; // characters

const coloured = (text, lang) =>
    text.length > MAX_COLOURED
        ? text
        : highlight(text, lang).map(([kind, part]) =>
              kind ? el('span', { class: `code-${kind}` }, part) : part,
          );

export function codeBlock(text, lang) {
    const copy = iconButton('copy', 'Copy code', () => copyText(text, copy));
    return el(
        'div',
        { class: 'code-block' },
        el('div', { class: 'code-head' }, el('span', {}, lang || 'text'), copy),
        // A block that scrolls has to be reachable by keyboard.
        el(
            'pre',
            { tabindex: '0', role: 'region', 'aria-label': lang ? `Code, ${lang}` : 'Code' },
            el('code', { dir: 'ltr' }, coloured(text, lang)),
        ),
    );
}

// In a list without blank lines, paragraphs are bare text.
function itemNodes({ blocks, checked }, loose) {
    const content = blocks.flatMap((block) =>
        !loose && block.type === 'paragraph' ? inlineNodes(block.inline) : [blockNode(block)],
    );
    if (checked === null) return el('li', { dir: 'auto' }, content);
    return el(
        'li',
        { class: 'task', dir: 'auto' },
        el(
            'span',
            { class: 'box', role: 'img', 'aria-label': checked ? 'done' : 'to do' },
            checked ? '☑' : '☐',
        ),
        ' ',
        content,
    );
}

function tableNode({ head, rows, align }) {
    const row = (tag, cells) =>
        el(
            'tr',
            {},
            head.map((_, i) =>
                el(tag, { class: align[i] ?? null, dir: 'auto' }, inlineNodes(cells[i] ?? [])),
            ),
        );
    return el(
        'div',
        { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table' },
        el(
            'table',
            {},
            el('thead', {}, row('th', head)),
            el(
                'tbody',
                {},
                rows.map((cells) => row('td', cells)),
            ),
        ),
    );
}

function blockNode(block) {
    switch (block.type) {
        case 'code':
            return codeBlock(block.text, block.lang);
        case 'heading':
            return el(
                `h${block.shownLevel ?? 3}`,
                { class: `level-${block.level}`, dir: 'auto' },
                inlineNodes(block.inline),
            );
        case 'rule':
            return el('hr');
        case 'math':
            return mathNode(block.text, true);
        case 'quote':
            return el('blockquote', { dir: 'auto' }, block.blocks.map(blockNode));
        case 'list':
            return el(
                block.ordered ? 'ol' : 'ul',
                { start: block.ordered && block.start !== 1 ? block.start : null },
                block.items.map((item) => itemNodes(item, block.loose)),
            );
        case 'table':
            return tableNode(block);
        default:
            return el('p', { dir: 'auto' }, inlineNodes(block.inline));
    }
}

// The page's own headings are h1 and h2; those of a text follow without a gap, whatever levels it
// uses. Depends on what came before alone, so that it stays while text streams in.
function setLevels(blocks) {
    const open = [];
    for (const block of blocks.filter((b) => b.type === 'heading')) {
        while (open.length && open.at(-1) >= block.level) open.pop();
        open.push(block.level);
        block.shownLevel = Math.min(6, open.length + 2);
    }
}

export class MarkdownView {
    constructor(container) {
        this.container = container;
        this.sources = [];
    }

    show(text) {
        const blocks = parseMarkdown(text);
        setLevels(blocks);
        let same = 0;
        while (same < blocks.length && blocks[same].source === this.sources[same]) same++;
        while (this.container.children.length > same) this.container.lastChild.remove();
        this.container.append(...blocks.slice(same).map(blockNode));
        this.sources = blocks.map((block) => block.source);
    }
}
