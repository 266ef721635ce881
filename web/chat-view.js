// The messages that are shown, and staying at their end while an answer grows.
import { byId, el, icon } from './dom.js';
import { shorten } from './format.js';
import { MessageView } from './message-view.js';
import { startersFor } from './starters.js';
import { shownPath, siblings } from './tree.js';

const NEAR = 80; // pixels from the end that still count as being there

function welcome(server, actions) {
    const plain = server.has_template === false;
    return el(
        'div',
        { class: 'welcome' },
        el(
            'h2',
            {},
            plain ? 'What should the text begin with?' : 'What would you like to talk about?',
        ),
        server.model &&
            el(
                'p',
                { class: 'quiet' },
                `${server.model} runs on this server. Conversations stay in this browser.`,
            ),
        plain &&
            el(
                'p',
                { class: 'quiet' },
                'It has no chat template, so it continues text instead of chatting.',
            ),
        el(
            'ul',
            {},
            (server.model ? startersFor(server) : []).map((text) =>
                el(
                    'li',
                    {},
                    el('button', { type: 'button', onclick: () => actions.send({ text }) }, text),
                ),
            ),
        ),
    );
}

// The system prompt, in plain sight above the messages it is for.
function systemPrompt(text, edit) {
    const button = el(
        'button',
        { type: 'button', onclick: edit },
        text ? 'Edit' : 'Add a system prompt',
    );
    if (!text) return el('div', { class: 'system none' }, button);
    return el(
        'details',
        { class: 'system' },
        el(
            'summary',
            {},
            'System prompt: ',
            el('bdi', {}, shorten(text.trim().split('\n')[0], 70)),
        ),
        el('div', { class: 'plain', dir: 'auto' }, text),
        button,
    );
}

export class ChatView {
    constructor(actions) {
        this.actions = actions;
        this.log = byId('log');
        this.list = byId('messages');
        this.views = new Map();
        this.pending = null;
        this.follows = true;
        byId('to-end').append(icon('down'), el('span', { class: 'sr' }, 'Scroll to the end'));
        byId('to-end').addEventListener('click', () => this.toEnd());
        this.log.addEventListener('scroll', () => this.onScroll());
    }

    onScroll() {
        this.follows = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR;
        byId('to-end').hidden = this.follows;
    }

    toEnd() {
        this.log.scrollTop = this.log.scrollHeight;
        this.onScroll();
    }

    // Shows a conversation anew; the focus stays on the same button of the same message.
    show(conversation, run, server) {
        const used = document.activeElement;
        const at = this.list.contains(used)
            ? [...this.list.children].findIndex((child) => child.contains(used))
            : -1;
        this.build(conversation, run, server);
        if (at < 0) return;
        const label = used.getAttribute('aria-label');
        const same = [...(this.list.children[at]?.querySelectorAll('button:enabled') ?? [])].find(
            (button) => button.getAttribute('aria-label') === label,
        );
        (same ?? this.log).focus({ preventScroll: true });
    }

    build(conversation, run, server) {
        const path = shownPath(conversation.nodes);
        this.views = new Map(
            path.map((node) => [
                node.id,
                new MessageView(node, siblings(conversation.nodes, node.id), this.actions),
            ]),
        );
        for (const view of this.views.values()) this.update(view, path.at(-1), run);
        this.list.replaceChildren(
            ...(path.length
                ? [...this.views.values()].map((v) => v.element)
                : [welcome(server, this.actions)]),
        );
        this.path = path;
        this.showSystem(conversation.settings.system);
    }

    showSystem(text) {
        byId('system').replaceChildren(systemPrompt(text, this.actions.editSystem));
    }

    // null: the end
    scrollTo(top) {
        if (top === null) this.toEnd();
        else {
            this.log.scrollTop = top;
            this.onScroll();
        }
    }

    place() {
        return this.follows ? null : this.log.scrollTop;
    }

    update(view, last, run) {
        view.update(run?.node === view.node ? run : undefined, view.node === last);
    }

    // Shows the newest text of an answer, once a frame at most.
    refresh(node, run) {
        this.pending ??= requestAnimationFrame(() => {
            this.pending = null;
            const view = this.views.get(node.id);
            if (!view) return;
            this.update(view, this.path.at(-1), run);
            if (this.follows) this.toEnd();
        });
    }

    // The request of `node` is over; at once, so that nothing shown is older than what is kept.
    settle(node) {
        cancelAnimationFrame(this.pending);
        this.pending = null;
        const view = this.views.get(node.id);
        if (view) this.update(view, this.path.at(-1), undefined);
        if (this.follows) this.toEnd();
    }

    // Marks the first n messages: they are no longer sent.
    markOmitted(n) {
        [...this.list.children].forEach((child, i) => {
            child.classList.toggle('omitted', i < n);
            if (i < n) child.setAttribute('aria-description', 'No longer sent');
            else child.removeAttribute('aria-description');
        });
    }
}
