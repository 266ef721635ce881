// What a conversation is, and its form in a file: export writes it, import checks every field,
// because a file may hold anything. No DOM here.
import { shorten } from './format.js';
import { DEFAULTS, SETTINGS } from './request.js';
import { addNode, newId, newTree, ROOT } from './tree.js';

const FORMAT = 'fletch-conversations',
    VERSION = 1;
const ROLES = ['user', 'assistant', 'tool'];
const MAX_NODES = 100_000;

export function newConversation(settings) {
    const now = Date.now();
    return {
        id: newId(),
        title: '', // given by hand; without one the first question is shown
        created: now,
        changed: now,
        settings: { ...DEFAULTS, ...settings },
        pinned: false,
        model: '', // that answered last
        stamps: {}, // when title, settings, pinned and model were set
        nodes: newTree(),
    };
}

// Sets a field of which the latest value counts when copies are merged.
export function setField(conversation, field, value) {
    conversation[field] = value;
    conversation.stamps = { ...conversation.stamps, [field]: Date.now() };
}

// The given title, or the first line of the question that is shown first.
export function titleOf(conversation) {
    if (conversation.title) return conversation.title;
    const { nodes } = conversation;
    const first = nodes.get(nodes.get(ROOT).chosen);
    const line = first?.content.trim().split('\n')[0] || first?.files?.[0]?.name;
    return line ? shorten(line, 60) : 'New chat';
}

const AROUND = 40; // characters of a snippet before and after what was searched for

function snippet(text, at, length) {
    const from = Math.max(0, at - AROUND),
        to = at + length + AROUND;
    const plain = (part) => part.replace(/\s+/g, ' ');
    return {
        before: (from > 0 ? '…' : '') + plain(text.slice(from, at)),
        match: plain(text.slice(at, at + length)),
        after: plain(text.slice(at + length, to)) + (to < text.length ? '…' : ''),
    };
}

// Where a conversation has these words: null, or {snippet}, which is null where they are in the
// title alone.
export function findIn(conversation, words) {
    const wanted = words.toLowerCase();
    for (const { content, files = [] } of conversation.nodes.values())
        for (const text of [content ?? '', ...files.map((file) => file.text)]) {
            const at = text.toLowerCase().indexOf(wanted);
            if (at >= 0) return { snippet: snippet(text, at, wanted.length) };
        }
    return titleOf(conversation).toLowerCase().includes(wanted) ? { snippet: null } : null;
}

export function exportJson(conversations) {
    const plain = conversations.map(({ nodes, ...rest }) => ({
        ...rest,
        // Parents come before their children, so that reading it back needs no second pass.
        messages: [...nodes.values()]
            .filter((n) => n.id !== ROOT)
            .map(({ children, tokens, ...node }) => node),
        chosen: nodes.get(ROOT).chosen,
    }));
    return JSON.stringify({ format: FORMAT, version: VERSION, conversations: plain }, null, 1);
}

const text = (value) => (typeof value === 'string' ? value : '');
const number = (value) => (Number.isFinite(value) ? value : null);

const pastTime = (value) => Math.min(number(value) ?? 0, Date.now());

function readSettings(value) {
    const settings = { ...DEFAULTS };
    for (const key of Object.keys(DEFAULTS))
        if (typeof DEFAULTS[key] === 'string') settings[key] = text(value?.[key]);
    settings.probabilities = value?.probabilities !== false;
    for (const { key, min, max } of SETTINGS) {
        const n = number(value?.[key]);
        if (n !== null && n >= min && n <= max) settings[key] = n;
    }
    return settings;
}

function readStats(value) {
    const stats = {};
    for (const key of [
        'prompt',
        'answer',
        'cached',
        'queue_ms',
        'prefill_ms',
        'decode_ms',
        'tokens_per_s',
        'seed',
        'omitted',
        'temperature',
    ]) {
        if (number(value?.[key]) !== null) stats[key] = value[key];
    }
    for (const key of ['reuseEnd', 'model']) if (text(value?.[key])) stats[key] = value[key];
    return stats;
}

function readStamps(value) {
    const stamps = {};
    for (const field of ['title', 'settings', 'pinned', 'model'])
        if (number(value?.[field]) !== null) stamps[field] = Math.min(value[field], Date.now());
    return stamps;
}

function readMessage(value, where) {
    if (!ROLES.includes(value?.role)) throw new Error(`${where} has an unknown role`);
    if (typeof value.content !== 'string') throw new Error(`${where} has no text`);
    const message = {
        id: text(value.id) || newId(),
        role: value.role,
        content: value.content,
        created: pastTime(value.created),
        changed: pastTime(value.changed),
    };
    if (Array.isArray(value.files) && value.files.length)
        message.files = value.files.map((f) => ({ name: text(f?.name), text: text(f?.text) }));
    if (value.role === 'tool') message.toolCallId = text(value.toolCallId);
    if (value.role === 'assistant') {
        const calls = Array.isArray(value.toolCalls) ? value.toolCalls : [];
        Object.assign(message, {
            reasoning: text(value.reasoning),
            finish: text(value.finish) || null,
            error: text(value.error) || null,
            toolCalls: calls.map((c) => ({
                id: text(c?.id),
                name: text(c?.name),
                arguments: text(c?.arguments),
            })),
            stats: readStats(value.stats),
        });
    }
    return message;
}

function readConversation(value, which) {
    if (!Array.isArray(value?.messages))
        throw new Error(`Conversation ${which} has no list of messages`);
    if (value.messages.length > MAX_NODES)
        throw new Error(`Conversation ${which} has more than ${MAX_NODES} messages`);
    const nodes = newTree();
    value.messages.forEach((m, i) =>
        addNode(
            nodes,
            text(m?.parent) || ROOT,
            readMessage(m, `Message ${i + 1} of conversation ${which}`),
        ),
    );
    // Adding shows the newest of each node's children; the file knows better.
    for (const { id, chosen } of [...value.messages, { id: ROOT, chosen: value.chosen }]) {
        const node = nodes.get(id);
        if (node?.children.includes(chosen)) node.chosen = chosen;
    }
    const now = Date.now();
    return {
        id: text(value.id) || newId(),
        title: text(value.title).slice(0, 200),
        created: number(value.created) ?? now,
        changed: number(value.changed) ?? now,
        settings: readSettings(value.settings),
        pinned: value.pinned === true,
        model: text(value.model).slice(0, 200),
        stamps: readStamps(value.stamps),
        nodes,
    };
}

// Throws an Error that says what is wrong with the file.
export function importJson(json) {
    let file;
    try {
        file = JSON.parse(json);
    } catch (error) {
        throw new Error(`This is not a JSON file: ${error.message}`);
    }
    if (file?.format !== FORMAT)
        throw new Error('This file does not contain conversations exported by fletch.');
    if (file.version !== VERSION)
        throw new Error(
            `This file has version ${file.version}, but this page supports only version ${VERSION}.`,
        );
    if (!Array.isArray(file.conversations))
        throw new Error('This file has no list of conversations.');
    return file.conversations.map((c, i) => readConversation(c, i + 1));
}
