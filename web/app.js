// Starts the page and connects its parts: buttons to what they do (chat.js), changes to what shows
// them.
import { Address } from './address.js';
import * as api from './api.js';
import { Chat } from './chat.js';
import { ChatView } from './chat-view.js';
import { Composer } from './composer.js';
import { titleOf } from './conversation.js';
import { askKey, askSame, showShortcuts } from './dialogs.js';
import { announce, byId, el, iconButton } from './dom.js';
import { shorten } from './format.js';
import { LiveView } from './live-view.js';
import { menuButton } from './menu.js';
import { ModelPicker } from './model-picker.js';
import { keepOffline } from './offline.js';
import { Panel } from './panel.js';
import { PromptView } from './prompt-view.js';
import { showRoom } from './room.js';
import { SettingsView } from './settings-view.js';
import { renameInPlace, Sidebar } from './sidebar.js';
import { themeButton } from './theme.js';
import { shownPath } from './tree.js';

const MEASURE_AFTER = 400; // ms without typing

const chat = new Chat({
    list: showTitle,
    conversation: showConversation,
    merged: onMerged,
    node: (conversation, node) => {
        if (conversation === chat.current) view.refresh(node, chat.runs.get(conversation.id));
    },
    settled: onSettled,
    unqueued: (conversation) => {
        if (conversation === chat.current) composer.load(conversation.id);
    },
    failed: notify,
    lost: () => picker.connect(),
});
const view = new ChatView({
    send: (message) => chat.send(message),
    edit: (node, text) => chat.edit(node, text),
    regenerate: (node) => chat.regenerate(node),
    again: answerAgain,
    continueAnswer: (node) => chat.continueAnswer(node),
    continueFrom: (node, index, alternative) => chat.continueFrom(node, index, alternative),
    answerTools: (node, results) => chat.answerTools(node, results),
    switchTo: (node, step) => chat.switchTo(node, step),
    tokens: (node) => chat.tokens(node),
    curl: (node) => chat.curl(node),
    editSystem: () => {
        panel.show(settings);
        settings.focusSystem();
    },
});
const sidebar = new Sidebar(chat, notify);
const composer = new Composer(chat, {
    changed: measureSoon,
    resized: () => view.follows && view.toEnd(),
    failed: notify,
});
const settings = new SettingsView(
    (values) => {
        chat.changeSettings(values);
        view.showSystem(values.system);
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
const address = new Address(openAddress);
const picker = new ModelPicker(
    (server) => {
        chat.server = server;
        settings.showDefaults(server.sampling);
        if (shownPath(chat.current.nodes).length) measureSoon();
        else view.show(chat.current, chat.runs.get(chat.current.id), server);
    },
    (before, now) => notify(`The server no longer has ${before}. The current model is ${now}.`),
    (text) => notify(text, true),
);
let isLoaded = false;

// ---- what is shown ----

function showTitle() {
    const title = titleOf(chat.current);
    const shown = el(
        'button',
        {
            type: 'button',
            title: 'Rename',
            dir: 'auto',
            onclick: () =>
                renameInPlace(shown, title, (text) => chat.change(chat.current, 'title', text)),
        },
        title,
    );
    const isKept = chat.conversations.has(chat.current.id);
    byId('title').replaceChildren(shown);
    document.title = isKept ? `${shorten(title, 40)} · fletch` : 'fletch';
    sidebar.show();
}

function showConversation() {
    const { current } = chat;
    const other = address.shown !== current;
    if (other && address.shown) address.keepPlace(address.shown.id, view.place());
    if (isLoaded) address.show(current, chat.conversations.has(current.id));
    picker.want(current.model);
    view.show(current, chat.runs.get(current.id), chat.server);
    view.scrollTo(other ? address.placeOf(current.id) : null);
    settings.show(current.settings);
    composer.show();
    showTitle();
    composer.showState();
    measureSoon();
}

// Another tab has added to a conversation. An edit that is under way is not disturbed.
function onMerged(conversation) {
    if (conversation !== chat.current || document.querySelector('.edit-form')) return;
    const place = view.place();
    view.show(conversation, chat.runs.get(conversation.id), chat.server);
    view.scrollTo(place);
    showTitle();
    measureSoon();
}

function onSettled(conversation, node) {
    sidebar.show();
    if (conversation !== chat.current) return;
    view.settle(node);
    composer.keep();
    if (!chat.server.nCtx) picker.refresh().catch(() => {});
    composer.showState();
    measureSoon();
    announce(
        node.error ? `The answer failed: ${node.error}` : `Answer: ${shorten(node.content, 500)}`,
    );
}

function openAddress(id) {
    if (id && !chat.conversations.has(id))
        notify('This browser has no conversation with this address.');
    chat.open(id);
}

async function answerAgain(node) {
    const why = chat.whySame(node);
    const choice = why ? await askSame(why) : 'same';
    const other = {
        temperature: { temperature: 0.8 },
        seed: { seed: crypto.getRandomValues(new Uint32Array(1))[0] },
    };
    if (choice) chat.regenerate(node, choice === 'other' ? other[why] : {});
}

function notify(text, lasting = false) {
    // What is said again stands there once.
    for (const earlier of byId('notice').querySelectorAll('.note'))
        if (earlier.querySelector('span').textContent === text) earlier.remove();
    const close = iconButton('close', 'Dismiss', () => note.remove());
    const note = el('div', { class: 'note' }, el('span', {}, text), close);
    byId('notice').append(note);
    if (!lasting) setTimeout(() => note.remove(), 15_000);
}

// ---- the context ----

function pathWithDraft() {
    const { text, files } = composer.draft();
    const path = shownPath(chat.current.nodes);
    if (composer.isEmpty() || chat.isBusy()) return path;
    return [...path, { role: 'user', content: text.trim(), files }];
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
    const path = pathWithDraft();
    let fit = null;
    try {
        fit = await chat.fit(path, chat.current.settings, measuring.signal);
    } catch (error) {
        if (error.name === 'AbortError') return;
    }
    showRoom(fit, path[0]);
    view.markOmitted(fit?.dropped ?? 0);
}

// ---- keys ----

const isWriting = (target) => target.matches?.('input, textarea, select, [contenteditable]');

// By their combination, with Ctrl or ⌘ as "mod".
const KEYS = {
    'mod+k': () => {
        sidebar.toggle(true);
        byId('search').focus();
    },
    'mod+shift+o': () => sidebar.pick(null),
    'mod+shift+s': () => sidebar.toggle(),
    'mod+,': () => panel.toggle(settings),
    '/': () => byId('input').focus(),
    '?': showShortcuts,
};

document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || document.querySelector('dialog[open]')) return;
    if (event.key === 'Escape' && chat.isBusy()) chat.stop();
    const mod = event.ctrlKey || event.metaKey;
    if (!mod && (isWriting(event.target) || event.altKey)) return;
    const shift = mod && event.shiftKey ? 'shift+' : '';
    const action = KEYS[(mod ? 'mod+' : '') + shift + event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
});

addEventListener('pagehide', () => address.keepPlace(chat.current.id, view.place()));
addEventListener('focus', () => {
    if (picker.models.length) picker.refresh().catch(() => {});
});

// ---- start ----

const theme = themeButton();
const fromMenu = (name, label, button) => [name, label, () => button.click()];
const more = menuButton(
    'more',
    'More',
    () => [
        ...[...panel.buttons].map(([v, button]) => fromMenu(v.icon, v.label, button)),
        fromMenu('theme', theme.title, theme),
        ['keyboard', 'Keyboard shortcuts', showShortcuts],
    ],
    { class: 'icon-button narrow-only' },
);
const shortcuts = iconButton('keyboard', 'Keyboard shortcuts', showShortcuts);

async function start() {
    api.onKeyNeeded(askKey);
    byId('heading').before(sidebar.toggleButton);
    byId('tools').append(...panel.buttons.values(), theme, shortcuts);
    byId('tools').after(sidebar.newButton, more);
    showConversation();
    byId('input').focus();
    picker.connect();
    keepOffline();
    await chat.load();
    isLoaded = true;
    // What was begun while the conversations were read stays.
    if (chat.conversations.has(chat.current.id)) showConversation();
    else openAddress(address.id());
}

start();
