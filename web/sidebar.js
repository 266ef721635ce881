// The list of conversations: search, rename, delete, import and export.
import { exportJson, importJson, matches, titleOf } from './conversation.js';
import { askDelete } from './dialogs.js';
import { announce, byId, el, icon, iconButton } from './dom.js';
import { plural, shorten } from './format.js';

function download(name, text) {
    const address = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
    el('a', { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const fileName = (title) =>
    `${
        title
            .replace(/[^\p{L}\p{N}]+/gu, '-')
            .replace(/^-|-$/g, '')
            .slice(0, 40) || 'chat'
    }.json`;

// An input in place of `shown`; done(text) is called unless it was left with Escape.
export function renameInPlace(shown, title, done) {
    const input = el('input', {
        type: 'text',
        class: 'rename',
        'aria-label': 'Title',
        maxlength: '200',
    });
    let finished = false;
    const finish = (keep) => {
        if (finished) return;
        finished = true;
        input.replaceWith(shown);
        if (keep && input.value.trim()) done(input.value.trim());
    };
    input.value = title;
    input.addEventListener('keydown', (event) => {
        event.stopPropagation();
        if (event.key === 'Enter') finish(true);
        if (event.key === 'Escape') finish(false);
    });
    input.addEventListener('blur', () => finish(true));
    shown.replaceWith(input);
    input.select();
}

export class Sidebar {
    // chat: the conversations; notify(text): shows a failure.
    constructor(chat, notify) {
        this.chat = chat;
        this.notify = notify;
        byId('new-chat').append(icon('plus'), 'New chat');
        byId('new-chat').addEventListener('click', () => this.pick(null));
        byId('search').addEventListener('input', () => this.show());
        byId('import').append(icon('upload'), 'Import');
        byId('import').addEventListener('click', () => byId('import-file').click());
        byId('import-file').addEventListener('change', (event) => this.import(event.target));
        byId('export').append(icon('download'), 'Export all');
        byId('export').addEventListener('click', () =>
            download('fletch-conversations.json', exportJson([...chat.conversations.values()])),
        );
        byId('shade').addEventListener('click', () => this.toggle(false));
        this.toggleButton = iconButton('menu', 'Conversations', () => this.toggle(), {
            'aria-controls': 'sidebar',
            'aria-expanded': 'false',
        });
        document.addEventListener('keydown', (event) => {
            if (event.key !== 'Escape' || !document.body.classList.contains('drawer')) return;
            event.preventDefault();
            this.toggle(false);
        });
    }

    // On narrow screens the list is a drawer over the page; on wide ones it can be folded away.
    toggle(open) {
        const narrow = matchMedia('(max-width: 50rem)').matches;
        const name = narrow ? 'drawer' : 'folded';
        const on = document.body.classList.toggle(
            name,
            open === undefined ? undefined : open === narrow,
        );
        byId('shade').hidden = !(narrow && on);
        this.toggleButton.setAttribute('aria-expanded', String(on === narrow));
        if (narrow && on) byId('search').focus();
    }

    pick(id) {
        this.chat.open(id);
        if (matchMedia('(max-width: 50rem)').matches) this.toggle(false);
        byId('input').focus();
    }

    show() {
        const words = byId('search').value.trim();
        const kept = [...this.chat.conversations.values()].filter(
            (c) => !words || matches(c, words),
        );
        kept.sort((a, b) => b.changed - a.changed);
        byId('conversations').replaceChildren(...kept.map((c) => this.item(c)));
        byId('no-match').hidden = kept.length > 0 || !words;
        byId('export').disabled = this.chat.conversations.size === 0;
    }

    item(conversation) {
        const title = titleOf(conversation);
        const current = conversation.id === this.chat.current.id;
        const open = el(
            'button',
            {
                type: 'button',
                class: 'open',
                'aria-current': current ? 'true' : null,
                title,
                onclick: () => this.pick(conversation.id),
            },
            el('span', {}, title),
            this.chat.runs.has(conversation.id) &&
                el('span', { class: 'busy', title: 'Answering' }),
        );
        const rename = () =>
            renameInPlace(open, title, (text) => this.chat.rename(conversation, text));
        return el(
            'li',
            { class: current ? 'current' : null },
            open,
            el(
                'span',
                { class: 'item-actions' },
                iconButton('edit', `Rename ${shorten(title, 40)}`, rename),
                iconButton('download', `Export ${shorten(title, 40)}`, () =>
                    download(fileName(title), exportJson([conversation])),
                ),
                iconButton('trash', `Delete ${shorten(title, 40)}`, async () => {
                    if (await askDelete(title)) this.chat.remove(conversation);
                }),
            ),
        );
    }

    async import(input) {
        const [file] = input.files;
        input.value = '';
        if (!file) return;
        try {
            const n = await this.chat.adopt(importJson(await file.text()));
            announce(`Imported ${plural(n, 'conversation')}`);
        } catch (error) {
            this.notify(`${file.name} was not imported. ${error.message}`);
        }
    }
}
