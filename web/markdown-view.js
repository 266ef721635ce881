// Shows Markdown as elements. While text streams in, blocks whose source did not change keep their
// elements, so that a selection or a scrolled code block stays as it is.
import { copyText, el, iconButton } from './dom.js';
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
            el('code', {}, text),
        ),
    );
}

// In a list without blank lines, paragraphs are bare text.
function itemNodes({ blocks, checked }, loose) {
    const content = blocks.flatMap((block) =>
        !loose && block.type === 'paragraph' ? inlineNodes(block.inline) : [blockNode(block)],
    );
    if (checked === null) return el('li', {}, content);
    return el(
        'li',
        { class: 'task' },
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
            head.map((_, i) => el(tag, { class: align[i] ?? null }, inlineNodes(cells[i] ?? []))),
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
        // The page's own headings are h1 and h2.
        case 'heading':
            return el(
                `h${Math.min(6, block.level + 2)}`,
                { class: `level-${block.level}` },
                inlineNodes(block.inline),
            );
        case 'rule':
            return el('hr');
        case 'quote':
            return el('blockquote', {}, block.blocks.map(blockNode));
        case 'list':
            return el(
                block.ordered ? 'ol' : 'ul',
                { start: block.ordered && block.start !== 1 ? block.start : null },
                block.items.map((item) => itemNodes(item, block.loose)),
            );
        case 'table':
            return tableNode(block);
        default:
            return el('p', {}, inlineNodes(block.inline));
    }
}

export class MarkdownView {
    constructor(container) {
        this.container = container;
        this.sources = [];
    }

    show(text) {
        const blocks = parseMarkdown(text);
        let same = 0;
        while (same < blocks.length && blocks[same].source === this.sources[same]) same++;
        while (this.container.children.length > same) this.container.lastChild.remove();
        this.container.append(...blocks.slice(same).map(blockNode));
        this.sources = blocks.map((block) => block.source);
    }
}
