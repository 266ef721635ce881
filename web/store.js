// Keeps conversations in the browser (IndexedDB). Several tabs may write the same one: what is
// written is merged with what is there, within one transaction. Token probabilities are much larger
// than the text they belong to, so they lie apart and are read only when they are shown.
import { mergeConversation, plainCopy } from './merge.js';

const promised = (request) =>
    new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });

let opening = null;

function open() {
    opening ??= (() => {
        const request = indexedDB.open('fletch', 1);
        request.onupgradeneeded = () => {
            request.result.createObjectStore('conversations', { keyPath: 'id' });
            request.result.createObjectStore('tokens', { keyPath: ['conversation', 'node'] });
        };
        return promised(request);
    })();
    return opening;
}

// Runs one transaction; resolves when it is on disk.
async function transact(mode, use) {
    const transaction = (await open()).transaction(['conversations', 'tokens'], mode);
    const done = new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error);
    });
    const value = await use(
        transaction.objectStore('conversations'),
        transaction.objectStore('tokens'),
    );
    await done;
    return value;
}

const tokensOf = (id) => IDBKeyRange.bound([id], [id, []]);

export const loadConversations = () =>
    transact('readonly', (conversations) => promised(conversations.getAll()));

export const loadConversation = (id) =>
    transact('readonly', (conversations) => promised(conversations.get(id)));

export const loadTokens = (id, node) =>
    transact(
        'readonly',
        async (_, tokens) => (await promised(tokens.get([id, node])))?.tokens ?? [],
    );

export const saveTokens = (id, node, tokens) =>
    transact('readwrite', (_, store) => promised(store.put({ conversation: id, node, tokens })));

// Resolves to what was there before, which other tabs may have written; undefined: nothing was.
export const saveConversation = (conversation) =>
    transact('readwrite', async (conversations) => {
        const copy = plainCopy(conversation);
        const before = await promised(conversations.get(conversation.id));
        if (before) mergeConversation(copy, before);
        await promised(conversations.put(copy));
        return before;
    });

export const deleteConversation = (id) =>
    transact('readwrite', (conversations, tokens) => {
        tokens.delete(tokensOf(id));
        return promised(conversations.delete(id));
    });
