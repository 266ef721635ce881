// The list of conversations: search, pin, rename, delete, import and export.
import { exportJson, findIn, importJson, titleOf } from './conversation.js';
import { askDelete } from './dialogs.js';
import { byId, download, el, icon, iconButton } from './dom.js';
import { count, plural, shorten } from './format.js';
import { grouped, shortDate } from './groups.js';
import { menuButton } from './menu.js';

const JSON_TYPE = 'application/json';

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
        dir: 'auto',
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
    // chat: the conversations; notify(text): shows what import did, or why not.
    constructor(chat, notify) {
        this.chat = chat;
        this.notify = notify;
        byId('new-chat').append(icon('plus'), 'New chat');
        byId('new-chat').addEventListener('click', () => this.pick(null));
        this.newButton = iconButton('plus', 'New chat', () => this.pick(null), {
            class: 'icon-button narrow-only',
        });
        byId('search').addEventListener('input', () => this.show());
        byId('import').append(icon('upload'), 'Import');
        byId('import').addEventListener('click', () => byId('import-file').click());
        byId('import-file').addEventListener('change', (event) => this.import(event.target));
        byId('export').append(icon('download'), 'Export all');
        byId('export').addEventListener('click', () =>
            download(
                'fletch-conversations.json',
                JSON_TYPE,
                exportJson([...chat.conversations.values()]),
            ),
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
        const all = [...this.chat.conversations.values()];
        const found = new Map(
            all.map((c) => [c, words ? findIn(c, words) : {}]).filter(([, hit]) => hit),
        );
        const now = Date.now();
        const lists = grouped(found.keys(), now).flatMap(([name, conversations]) => [
            el('p', { class: 'group', 'aria-hidden': 'true' }, name),
            el(
                'ul',
                { 'aria-label': name },
                conversations.map((c) => this.item(c, found.get(c).snippet, now)),
            ),
        ]);
        byId('conversations').replaceChildren(...lists);
        byId('no-match').hidden = found.size > 0 || !words;
        byId('export').disabled = all.length === 0;
    }

    item(conversation, snippet, now) {
        const title = titleOf(conversation);
        const current = conversation.id === this.chat.current.id;
        const { changed } = conversation;
        const open = el(
            'button',
            {
                type: 'button',
                class: 'open',
                'aria-current': current ? 'true' : null,
                title,
                onclick: () => this.pick(conversation.id),
            },
            el('span', { class: 'name', dir: 'auto' }, title),
            this.chat.runs.has(conversation.id)
                ? el('span', { class: 'busy', title: 'Answering' })
                : el(
                      'time',
                      {
                          datetime: new Date(changed).toISOString(),
                          title: new Date(changed).toLocaleString(),
                      },
                      shortDate(changed, now),
                  ),
            snippet &&
                el(
                    'span',
                    { class: 'snippet', dir: 'auto' },
                    snippet.before,
                    el('mark', {}, snippet.match),
                    snippet.after,
                ),
        );
        const li = el('li', { class: current ? 'current' : null }, open);
        li.append(
            menuButton('more', `Actions for ${shorten(title, 40)}`, () =>
                this.actions(conversation, title, open),
            ),
        );
        return li;
    }

    actions(conversation, title, open) {
        const { chat } = this;
        const { pinned } = conversation;
        return [
            ['pin', pinned ? 'Unpin' : 'Pin', () => chat.change(conversation, 'pinned', !pinned)],
            [
                'edit',
                'Rename',
                () =>
                    renameInPlace(open, title, (text) => chat.change(conversation, 'title', text)),
            ],
            [
                'download',
                'Export',
                () => download(fileName(title), JSON_TYPE, exportJson([conversation])),
            ],
            [
                'trash',
                'Delete',
                async () => {
                    if (await askDelete(title)) chat.remove(conversation);
                },
            ],
        ];
    }

    async import(input) {
        const [file] = input.files;
        input.value = '';
        if (!file) return;
        try {
            const { added, extended, same } = await this.chat.adopt(importJson(await file.text()));
            const parts = [
                `${plural(added, 'conversation')} added`,
                extended > 0 && `${count(extended)} extended with new messages`,
                same > 0 && `${count(same)} already here`,
            ];
            this.notify(`${file.name}: ${parts.filter(Boolean).join(', ')}.`);
        } catch (error) {
            this.notify(`${file.name} was not imported. ${error.message}`);
        }
    }
}
