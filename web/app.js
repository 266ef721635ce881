// Starts the page and connects its parts: buttons to what they do (chat.js), changes to what shows
// them.
import * as api from './api.js';
import { Chat } from './chat.js';
import { ChatView } from './chat-view.js';
import { NEARLY_FULL } from './context.js';
import { titleOf } from './conversation.js';
import { askKey } from './dialogs.js';
import { announce, byId, el, icon, iconButton } from './dom.js';
import { count, percent, plural, shorten } from './format.js';
import { LiveView } from './live-view.js';
import { ModelPicker } from './model-picker.js';
import { Panel } from './panel.js';
import { PromptView } from './prompt-view.js';
import { SettingsView } from './settings-view.js';
import { renameInPlace, Sidebar } from './sidebar.js';
import { themeButton } from './theme.js';
import { shownPath } from './tree.js';

const MEASURE_AFTER = 400; // ms without typing

const chat = new Chat({
    list: showTitle,
    conversation: showConversation,
    node: (conversation, node) => {
        if (conversation === chat.current) view.refresh(node, chat.runs.get(conversation.id));
    },
    settled: onSettled,
    failed: notify,
});
const view = new ChatView({
    send: (text) => chat.send(text),
    edit: (node, text) => chat.edit(node, text),
    regenerate: (node) => chat.regenerate(node),
    continueAnswer: (node) => chat.continueAnswer(node),
    continueFrom: (node, index, alternative) => chat.continueFrom(node, index, alternative),
    answerTools: (node, results) => chat.answerTools(node, results),
    switchTo: (node, step) => chat.switchTo(node, step),
    tokens: (node) => chat.tokens(node),
    curl: (node) => chat.curl(node),
});
const sidebar = new Sidebar(chat, notify);
const settings = new SettingsView(
    (values) => {
        chat.changeSettings(values);
        measureSoon();
    },
    (values) => chat.setDefaults(values),
);
const prompt = new PromptView(async () => {
    const path = pathWithDraft();
    if (!path.length) return null;
    // After an answer there is nothing to send: then it is what the model saw and what it said.
    const ends = path.at(-1).role === 'assistant' && { continue_final_message: true };
    return api.applyTemplate({ ...chat.promptBody(chat.current.settings, path), ...ends });
});
const panel = new Panel([settings, prompt, new LiveView(() => chat.server.model)]);
const picker = new ModelPicker(
    (server) => {
        chat.server = server;
        if (shownPath(chat.current.nodes).length) measureSoon();
        else showConversation();
    },
    (text) => notify(text, true),
);

// ---- what is shown ----

function showTitle() {
    const title = titleOf(chat.current);
    const shown = el(
        'button',
        {
            type: 'button',
            title: 'Rename',
            onclick: () => renameInPlace(shown, title, (text) => chat.rename(chat.current, text)),
        },
        title,
    );
    byId('title').replaceChildren(shown);
    document.title = chat.current.title ? `${shorten(title, 40)} · fletch` : 'fletch';
    sidebar.show();
}

function showConversation() {
    const run = chat.runs.get(chat.current.id);
    view.show(chat.current, run, chat.server.model);
    view.toEnd();
    settings.show(chat.current.settings);
    showTitle();
    showBusy();
    measureSoon();
}

function showBusy() {
    const busy = chat.isBusy();
    const send = byId('send');
    send.replaceChildren(icon(busy ? 'stop' : 'send'));
    send.title = busy ? 'Stop (Escape)' : 'Send';
    send.setAttribute('aria-label', busy ? 'Stop' : 'Send');
    send.classList.toggle('stop', busy);
    send.disabled = !busy && !byId('input').value.trim();
}

function onSettled(conversation, node) {
    sidebar.show();
    if (conversation !== chat.current) return;
    view.settle(node);
    if (!chat.server.nCtx) picker.refresh().catch(() => {});
    showBusy();
    measureSoon();
    announce(
        node.error ? `The answer failed: ${node.error}` : `Answer: ${shorten(node.content, 500)}`,
    );
}

function notify(text, lasting = false) {
    const close = iconButton('close', 'Dismiss', () => note.remove());
    const note = el('div', { class: 'note' }, el('span', {}, text), close);
    byId('notice').append(note);
    if (!lasting) setTimeout(() => note.remove(), 15_000);
}

// ---- the context ----

function pathWithDraft() {
    const draft = byId('input').value.trim();
    const path = shownPath(chat.current.nodes);
    return draft && !chat.isBusy() ? [...path, { role: 'user', content: draft }] : path;
}

let measuring = null,
    timer = null;

function measureSoon() {
    clearTimeout(timer);
    timer = setTimeout(measure, MEASURE_AFTER);
    measuring?.abort();
}

async function measure() {
    prompt.refresh();
    measuring = new AbortController();
    try {
        showRoom(await chat.fit(pathWithDraft(), chat.current.settings, measuring.signal));
    } catch (error) {
        if (error.name !== 'AbortError') showRoom(null);
    }
}

// How full the context is; when nearly, which messages go first.
function showRoom(fit) {
    byId('room').hidden = !fit;
    byId('context-notice')?.remove();
    view.markOmitted(fit?.dropped ?? 0);
    if (!fit) return;
    const share = fit.total / fit.nCtx;
    byId('room-meter').value = Math.min(1, share);
    byId('room-text').textContent = `${count(fit.total)} of ${count(fit.nCtx)} tokens`;
    if (share < NEARLY_FULL && !fit.dropped) return;
    const quoted = `“${shorten(pathWithDraft()[0].content, 40)}”`;
    const said = fit.dropped
        ? `The context is full: the first ${plural(fit.dropped, 'message')}, from ${quoted} on, ` +
          'will no longer be sent.'
        : `The context is ${percent(share)} full. Soon the oldest messages will be left out, ` +
          `beginning with ${quoted}.`;
    byId('notice').append(el('div', { class: 'note', id: 'context-notice' }, el('span', {}, said)));
}

// ---- typing ----

const input = byId('input');

function grow() {
    input.style.height = 'auto';
    input.style.height = `${Math.min(input.scrollHeight, innerHeight * 0.4)}px`;
    if (view.follows) view.toEnd();
}

function submit() {
    const text = input.value.trim();
    if (!text || chat.isBusy()) return;
    input.value = '';
    grow();
    chat.send(text);
}

input.addEventListener('input', () => {
    grow();
    showBusy();
    measureSoon();
});
input.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
});
byId('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    if (chat.isBusy()) chat.stop();
    else submit();
});
document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented) return;
    if (event.key === 'Escape' && chat.isBusy() && !document.querySelector('dialog')) chat.stop();
    if (event.key === 'k' && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        sidebar.toggle(true);
        byId('search').focus();
    }
});

// ---- start ----

api.onKeyNeeded(askKey);
byId('title').before(sidebar.toggleButton);
byId('tools').append(...panel.buttons.values(), themeButton());
showConversation();
input.focus();

picker.connect();
chat.load();
